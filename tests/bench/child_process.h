// SPDX-License-Identifier: Apache-2.0
//
// A program that is measured: started with its output in a file, watched through /proc, ended with
// SIGTERM.
//
// Threading: one thread.
#ifndef TESTS_BENCH_CHILD_PROCESS_H_
#define TESTS_BENCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fleetblame::bench {

struct ProcessUsage {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t peak_resident_bytes = 0;
  int threads = 0;
};

class ChildProcess {
 public:
  // What it writes to standard output and error goes to `log_path`.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command,
                                            const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Ends it if it still runs.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  absl::StatusOr<ProcessUsage> Usage() const;
  bool Running();
  // SIGTERM, then waits. Returns the exit code, or 128 + signal.
  int Stop();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// A port of 127.0.0.1 that was free a moment ago.
int FreePort();

}  // namespace fleetblame::bench

#endif  // TESTS_BENCH_CHILD_PROCESS_H_
