// SPDX-License-Identifier: Apache-2.0
//
// What watches the disk during a run of the cost benchmark: nothing, our tracer, our whole agent,
// or one of the tools that people use instead. On from Start to Stop.
//
// Not thread-safe.
#ifndef TESTS_BENCH_OVERHEAD_OBSERVER_H_
#define TESTS_BENCH_OVERHEAD_OBSERVER_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::testing {

// What an observer itself says about a run.
struct Observation {
  uint64_t recorded_bytes = 0;  // of the tracer, where known
  uint64_t lost_bytes = 0;
  uint64_t kernel_bytes = 0;  // of the same windows
  uint64_t rows = 0;
  std::map<std::string, uint64_t> losses;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual absl::Status Start(const std::string& disk) = 0;
  virtual absl::StatusOr<Observation> Stop() = 0;
  // CPU time so far of the observer's own process; 0 for what runs in this one.
  virtual uint64_t ChildCpuNs() const { return 0; }
  // The process that observes: this one, or a child.
  virtual pid_t pid() const { return getpid(); }
};

std::unique_ptr<Observer> NoObserver();

// The tracer in this process, collected from a thread every `interval`.
std::unique_ptr<Observer> TracerObserver(
    std::function<absl::StatusOr<std::unique_ptr<agent::Tracer>>(const std::string& disk)> make,
    absl::Duration interval);

// Another program, which loads BPF programs; Start returns when it has. "{disk}" in an argument is
// replaced by the disk's name.
std::unique_ptr<Observer> ProgramObserver(std::vector<std::string> command);

}  // namespace fleetblame::testing

#endif  // TESTS_BENCH_OVERHEAD_OBSERVER_H_
