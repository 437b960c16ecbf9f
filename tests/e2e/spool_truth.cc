// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/spool_truth.h"

#include <algorithm>
#include <memory>

#include "node-agent/spool/spool.h"

namespace fleetblame::testing {

absl::StatusOr<SpoolTruth> ReadSpoolTruth(const std::string& state_dir) {
  agent::SpoolOptions options;
  options.directory = state_dir + "/spool";
  auto spool = agent::Spool::Open(options);
  if (!spool.ok()) return spool.status();
  uint64_t first = 0;
  uint64_t last = 0;
  (*spool)->Range(&first, &last);
  SpoolTruth truth;
  truth.numbered = std::max((*spool)->previous_state().last_seq, last);
  truth.waiting = last == 0 ? 0 : last - first + 1;
  return truth;
}

}  // namespace fleetblame::testing
