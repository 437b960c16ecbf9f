// SPDX-License-Identifier: Apache-2.0
//
// What an observer itself uses while a disk does IO at a fixed rate: its share of one core and its
// resident memory. What its kernel side costs is paid by those who do the IO, and is measured by
// CPU an IO instead.
//
// Not thread-safe.
#ifndef TESTS_BENCH_OVERHEAD_FOOTPRINT_H_
#define TESTS_BENCH_OVERHEAD_FOOTPRINT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tests/bench/overhead/jobs.h"
#include "tests/bench/overhead/observer.h"

namespace fleetblame::testing {

struct Footprint {
  double iops = 0;        // reached
  double core_share = 0;  // 0.02 = 2 % of one core
  uint64_t resident_bytes = 0;
};

absl::StatusOr<Footprint> MeasureFootprint(JobSite* site, Observer* observer, int iops,
                                           double seconds);

}  // namespace fleetblame::testing

#endif  // TESTS_BENCH_OVERHEAD_FOOTPRINT_H_
