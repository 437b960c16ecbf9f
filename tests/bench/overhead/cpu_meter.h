// SPDX-License-Identifier: Apache-2.0
//
// Measures how much CPU time a machine spends on something, also where that something leaves the
// CPU half idle: idle time is turned into the run time of spinners of the lowest scheduling class,
// one pinned to each CPU, and whatever they did not get was spent on the work.
//
//   busy      = CPUs x wall time - spinners - idle - stolen by the hypervisor. Everything on the
//               machine counts, also what has nothing to do with the measurement.
//   attributed = kernel threads + this process + the children that the caller adds. Blind to other
//               people's processes, so it is usable on a machine that is not quiet; blind too to
//               interrupts that land on somebody else.
//
// Not thread-safe. Times are nanoseconds.
#ifndef TESTS_BENCH_OVERHEAD_CPU_METER_H_
#define TESTS_BENCH_OVERHEAD_CPU_METER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace fleetblame::testing {

struct CpuUse {
  uint64_t wall_ns = 0;
  uint64_t busy_ns = 0;
  uint64_t attributed_ns = 0;  // without children: add theirs
};

class CpuMeter {
 public:
  // Starts the spinners; they end with the object, or with this process.
  static absl::StatusOr<std::unique_ptr<CpuMeter>> Create();
  ~CpuMeter();
  CpuMeter(const CpuMeter&) = delete;
  CpuMeter& operator=(const CpuMeter&) = delete;

  void Start();
  // Since Start.
  CpuUse Stop();

 private:
  struct Reading {
    uint64_t wall_ns = 0;
    uint64_t spinners_ns = 0;
    uint64_t not_running_ns = 0;  // idle, waiting for IO, stolen
    uint64_t self_ns = 0;
    std::map<pid_t, uint64_t> kernel_threads_ns;
  };

  CpuMeter() = default;
  Reading Read() const;

  std::vector<pid_t> spinners_;
  Reading start_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_BENCH_OVERHEAD_CPU_METER_H_
