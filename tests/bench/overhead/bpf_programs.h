// SPDX-License-Identifier: Apache-2.0
//
// The BPF programs that the kernel holds, and how often and how long each ran. Run statistics are
// counted only while a BpfRunStats object lives; counting itself costs some tens of nanoseconds a
// run, so no other measurement should be taken then.
//
// Not thread-safe.
#ifndef TESTS_BENCH_OVERHEAD_BPF_PROGRAMS_H_
#define TESTS_BENCH_OVERHEAD_BPF_PROGRAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace fleetblame::testing {

struct BpfProgram {
  std::string name;
  uint64_t runs = 0;
  uint64_t run_ns = 0;
  uint64_t misses = 0;  // events that came while the same program was running on that CPU
};

// By the kernel's id. Empty without the privilege to ask.
std::map<uint32_t, BpfProgram> ListBpfPrograms();

class BpfRunStats {
 public:
  static absl::StatusOr<std::unique_ptr<BpfRunStats>> Enable();
  ~BpfRunStats();
  BpfRunStats(const BpfRunStats&) = delete;
  BpfRunStats& operator=(const BpfRunStats&) = delete;

 private:
  explicit BpfRunStats(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_BENCH_OVERHEAD_BPF_PROGRAMS_H_
