// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

uint64_t LevelNs(Level level) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  switch (level) {
    case Level::kRaw:
      return 0;
    case Level::k1m:
      return 60 * kSecondNs;
    case Level::k10m:
      return 600 * kSecondNs;
    case Level::k1h:
      return 3600 * kSecondNs;
    case Level::k6h:
      return 6 * 3600 * kSecondNs;
    case Level::k1d:
      return 86400 * kSecondNs;
  }
  return 0;
}

}  // namespace fleetblame::aggregator
