// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/sysctl_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fleetblame::testing {
namespace {

// Runs after fork, perhaps beside locks held by threads that no longer exist: system calls only.
// Keeps the lock open until it has written, whoever else lets go of it.
[[noreturn]] void RestoreAtEndOfFile(int pipe_fd, int lock_fd, const char* path, const char* value,
                                     size_t size) {
  setsid();  // out of reach of the terminal's Ctrl-C
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  // Whatever else was open (loop devices, pipes) must not be kept alive from here.
  const int low = pipe_fd < lock_fd ? pipe_fd : lock_fd;
  const int high = pipe_fd < lock_fd ? lock_fd : pipe_fd;
  if (low > 0) close_range(0, low - 1, 0);
  if (high > low + 1) close_range(low + 1, high - 1, 0);
  close_range(high + 1, ~0U, 0);
  char byte;
  while (read(pipe_fd, &byte, 1) < 0 && errno == EINTR) {
  }
  const int fd = open(path, O_WRONLY);
  const bool written = fd >= 0 && write(fd, value, size) == static_cast<ssize_t>(size);
  _exit(written ? 0 : 1);
}

// The lock that all guards of `path` share.
absl::StatusOr<int> LockFor(const std::string& path) {
  const std::string name =
      "/tmp/fleetblame-test" + absl::StrReplaceAll(path, {{"/", "-"}}) + ".lock";
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", name));
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (absl::Now() > deadline) {
      close(fd);
      return absl::UnavailableError(
          absl::StrCat("another test holds ", path, " changed for over a minute (", name, ")"));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return fd;
}

absl::StatusOr<std::string> ReadSetting(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in.is_open() || text.str().empty()) return absl::NotFoundError(absl::StrCat("read ", path));
  return text.str();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SysctlGuard>> SysctlGuard::Set(const std::string& path,
                                                              const std::string& value) {
  auto lock_fd = LockFor(path);
  if (!lock_fd.ok()) return lock_fd.status();
  auto old_value = ReadSetting(path);
  if (!old_value.ok()) {
    close(*lock_fd);
    return old_value.status();
  }
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    absl::Status status = absl::ErrnoToStatus(errno, "pipe");
    close(*lock_fd);
    return status;
  }
  const pid_t restorer = fork();
  if (restorer == 0) {
    close(pipe_fds[1]);
    RestoreAtEndOfFile(pipe_fds[0], *lock_fd, path.c_str(), old_value->data(), old_value->size());
  }
  close(pipe_fds[0]);
  if (restorer < 0) {
    close(pipe_fds[1]);
    close(*lock_fd);
    return absl::ErrnoToStatus(errno, "fork the process that restores a setting");
  }
  std::unique_ptr<SysctlGuard> guard(new SysctlGuard(restorer, pipe_fds[1], *lock_fd));
  std::ofstream out(path);
  out << value << std::flush;
  if (!out) return absl::PermissionDeniedError(absl::StrCat("write ", path, "; run as root"));
  return guard;
}

SysctlGuard::~SysctlGuard() {
  close(pipe_fd_);
  while (waitpid(restorer_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(lock_fd_);
}

}  // namespace fleetblame::testing
