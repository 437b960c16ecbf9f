// SPDX-License-Identifier: Apache-2.0
//
// What an agent that is not running says of itself on disk: how many batches it ever numbered, and
// how many of them still wait. Pure functions but for the files.
#ifndef TESTS_E2E_SPOOL_TRUTH_H_
#define TESTS_E2E_SPOOL_TRUTH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace fleetblame::testing {

struct SpoolTruth {
  uint64_t numbered = 0;  // batches that got a sequence number so far
  uint64_t waiting = 0;   // of these, not yet acknowledged
};

absl::StatusOr<SpoolTruth> ReadSpoolTruth(const std::string& state_dir);

}  // namespace fleetblame::testing

#endif  // TESTS_E2E_SPOOL_TRUTH_H_
