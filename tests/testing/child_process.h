// SPDX-License-Identifier: Apache-2.0
//
// Starts programs beside a test or benchmark and makes sure that none outlives it: a child is
// killed when its object goes away, and by the kernel when the parent dies for any reason.
//
// Not thread-safe. The kernel ties a child to the *thread* that started it, so start children from
// a thread that lives as long as they should. Times are nanoseconds (`_ns`). Errors name the
// program and how it ended.
#ifndef TESTS_TESTING_CHILD_PROCESS_H_
#define TESTS_TESTING_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fleetblame::testing {

// How a child ended, from its exit_status.
std::string DescribeEnd(int status);

struct ChildResult {
  int exit_status = 0;  // as of waitpid
  std::string output;   // standard output, when it was captured
  uint64_t cpu_ns = 0;  // user and system time of the child and of the children it waited for
};

class ChildProcess {
 public:
  enum class Output {
    kCapture,  // collected by Wait
    kDiscard,  // standard output and standard error go to /dev/null
    kInherit,
    kAppend,  // both go to the end of a file
  };

  // argv[0] is looked up in PATH, with the system's administrator directories added. `file` is for
  // kAppend.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             Output output,
                                                             const std::string& file = "");
  // Kills the child if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Without waiting, and without taking the result away from the two below.
  bool HasEnded() const;

  // Reads the output to its end and waits for the child's end. Once only.
  absl::StatusOr<ChildResult> Wait();

  // Asks the child to end by `signal`, kills it after a time of grace, and waits.
  absl::StatusOr<ChildResult> Stop(int signal, absl::Duration grace = absl::Seconds(5));

 private:
  ChildProcess(pid_t pid, int output_fd, std::string name)
      : pid_(pid), output_fd_(output_fd), name_(std::move(name)) {}
  absl::StatusOr<ChildResult> Reap();

  pid_t pid_;
  int output_fd_;  // -1 when nothing is captured
  std::string name_;
};

// Runs a program to its end and returns its standard output. An exit status other than 0 is an
// error.
absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& argv);

// Whether a program can be found the way Start finds it.
bool HaveProgram(const std::string& name);

}  // namespace fleetblame::testing

#endif  // TESTS_TESTING_CHILD_PROCESS_H_
