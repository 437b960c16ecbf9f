// SPDX-License-Identifier: Apache-2.0
//
// What another process has taken so far, from /proc.
//
// Threading: pure function. Errors: NOT_FOUND when there is no such process.
#ifndef TESTS_TESTING_PROCESS_USAGE_H_
#define TESTS_TESTING_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace fleetblame::testing {

struct ProcessUsage {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t peak_resident_bytes = 0;
  int threads = 0;
};

absl::StatusOr<ProcessUsage> UsageOf(pid_t pid);

}  // namespace fleetblame::testing

#endif  // TESTS_TESTING_PROCESS_USAGE_H_
