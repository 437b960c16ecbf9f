// SPDX-License-Identifier: Apache-2.0
#include "node-agent/host/clocks.h"

#include <time.h>

#include <algorithm>
#include <array>

namespace fleetblame::agent {
namespace {

uint64_t Read(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

uint64_t BootTimeNs() { return Read(CLOCK_BOOTTIME); }
uint64_t RealTimeNs() { return Read(CLOCK_REALTIME); }

int64_t RealtimeOffsetNs() {
  // The median of a few tries is not one that was interrupted between its two readings.
  std::array<int64_t, 5> offsets;
  for (int64_t& offset : offsets) {
    const uint64_t before = BootTimeNs();
    const uint64_t real = RealTimeNs();
    const uint64_t after = BootTimeNs();
    offset = static_cast<int64_t>(real - (before + (after - before) / 2));
  }
  std::sort(offsets.begin(), offsets.end());
  return offsets[2];
}

}  // namespace fleetblame::agent
