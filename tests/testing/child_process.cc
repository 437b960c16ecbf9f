// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fleetblame::testing {
namespace {

// mkfs stands in /usr/sbin, which is not on the PATH that Bazel gives to tests.
std::string SearchPath() {
  const char* path = getenv("PATH");
  return absl::StrCat(path == nullptr ? "/usr/bin:/bin" : path, ":/usr/local/sbin:/usr/sbin:/sbin");
}

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  for (absl::string_view directory : absl::StrSplit(SearchPath(), ':')) {
    std::string candidate = absl::StrCat(directory, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// The child's side of fork: only calls that are safe there when other threads exist.
[[noreturn]] void Execute(const char* program, char* const* argv, pid_t parent, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // the parent died before the line above
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  execv(program, argv);
  _exit(127);
}

}  // namespace

std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was killed by signal ", WTERMSIG(status));
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& argv, Output output, const std::string& file) {
  const std::string program = FindProgram(argv.at(0));
  if (program.empty()) return absl::NotFoundError(absl::StrCat("no program ", argv[0], " in PATH"));
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  int pipe_fds[2] = {-1, -1};
  int out = -1;
  int err = -1;
  if (output == Output::kCapture) {
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    out = pipe_fds[1];
  } else if (output != Output::kInherit) {
    const std::string path = output == Output::kDiscard ? "/dev/null" : file;
    out = err = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (out < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Execute(program.c_str(), arguments.data(), parent, out, err);
  const int fork_error = errno;
  if (out >= 0) close(out);
  if (pid < 0) {
    if (pipe_fds[0] >= 0) close(pipe_fds[0]);
    return absl::ErrnoToStatus(fork_error, absl::StrCat("fork for ", argv[0]));
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, pipe_fds[0], absl::StrJoin(argv, " ")));
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (output_fd_ >= 0) close(output_fd_);
}

absl::StatusOr<ChildResult> ChildProcess::Wait() { return Reap(); }

bool ChildProcess::HasEnded() const {
  siginfo_t info{};
  return pid_ <= 0 ||
         waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

absl::StatusOr<ChildResult> ChildProcess::Stop(int signal, absl::Duration grace) {
  if (pid_ <= 0) return Reap();  // says why not
  kill(pid_, signal);
  const absl::Time deadline = absl::Now() + grace;
  while (!HasEnded() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  if (!HasEnded()) kill(pid_, SIGKILL);
  return Reap();
}

absl::StatusOr<ChildResult> ChildProcess::Reap() {
  if (pid_ <= 0)
    return absl::FailedPreconditionError(absl::StrCat(name_, " was waited for already"));
  ChildResult result;
  while (output_fd_ >= 0) {
    char buffer[1 << 16];
    const ssize_t got = read(output_fd_, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    result.output.append(buffer, got);
  }
  rusage usage{};
  while (wait4(pid_, &result.exit_status, 0, &usage) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat("wait for ", name_));
  }
  pid_ = -1;
  auto to_ns = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_usec) * 1000u;
  };
  result.cpu_ns = to_ns(usage.ru_utime) + to_ns(usage.ru_stime);
  return result;
}

absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& argv) {
  auto child = ChildProcess::Start(argv, ChildProcess::Output::kCapture);
  if (!child.ok()) return child.status();
  auto result = (*child)->Wait();
  if (!result.ok()) return result.status();
  if (result->exit_status != 0) {
    return absl::InternalError(absl::StrCat("`", absl::StrJoin(argv, " "), "` ",
                                            DescribeEnd(result->exit_status), ": ",
                                            result->output));
  }
  return std::move(result->output);
}

bool HaveProgram(const std::string& name) { return !FindProgram(name).empty(); }

}  // namespace fleetblame::testing
