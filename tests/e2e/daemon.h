// SPDX-License-Identifier: Apache-2.0
//
// A long-running program under test whose output goes to a file, so that a test can wait for what
// it says and show it when something went wrong. Killed when the object goes away.
//
// Not thread-safe; see child_process.h for which thread may start one.
#ifndef TESTS_E2E_DAEMON_H_
#define TESTS_E2E_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {

class Daemon {
 public:
  // Appends to `log_path`.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const std::vector<std::string>& argv,
                                                       const std::string& log_path);

  pid_t pid() const { return child_->pid(); }

  // Without waiting, and without taking the exit status away from the two below.
  bool HasEnded() const { return child_->HasEnded(); }
  // Sends the signal and waits; exit status as of waitpid.
  absl::StatusOr<int> Stop(int signal);
  // Waits for an end that the program comes to by itself.
  absl::StatusOr<int> WaitForExit();

  // What it has said since this start. Never longer than the last 4 MiB.
  std::string Log() const;
  // False when `text` does not appear within the time.
  bool WaitForLog(const std::string& text, absl::Duration timeout) const;

 private:
  Daemon(std::unique_ptr<ChildProcess> child, std::string log_path, size_t log_start)
      : child_(std::move(child)), log_path_(std::move(log_path)), log_start_(log_start) {}

  std::unique_ptr<ChildProcess> child_;
  std::string log_path_;
  size_t log_start_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_E2E_DAEMON_H_
