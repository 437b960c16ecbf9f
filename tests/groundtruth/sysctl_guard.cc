// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/sysctl_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace fleetblame::testing {
namespace {

// Runs after fork, perhaps beside locks held by threads that no longer exist: system calls only.
[[noreturn]] void RestoreAtEndOfFile(int pipe_fd, const char* path, const char* value,
                                     size_t size) {
  setsid();  // out of reach of the terminal's Ctrl-C
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  dup2(pipe_fd, 3);
  // Whatever else was open (loop devices, pipes) must not be kept alive from here.
  close_range(4, ~0U, 0);
  for (int fd = 0; fd < 3; ++fd) close(fd);
  char byte;
  while (read(3, &byte, 1) < 0 && errno == EINTR) {
  }
  const int fd = open(path, O_WRONLY);
  const bool written = fd >= 0 && write(fd, value, size) == static_cast<ssize_t>(size);
  _exit(written ? 0 : 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SysctlGuard>> SysctlGuard::Set(const std::string& path,
                                                              const std::string& value) {
  std::ifstream in(path);
  std::stringstream old;
  old << in.rdbuf();
  if (!in.is_open() || old.str().empty()) return absl::NotFoundError(absl::StrCat("read ", path));
  const std::string old_value = old.str();

  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const pid_t restorer = fork();
  if (restorer == 0) {
    close(pipe_fds[1]);
    RestoreAtEndOfFile(pipe_fds[0], path.c_str(), old_value.data(), old_value.size());
  }
  close(pipe_fds[0]);
  if (restorer < 0) {
    close(pipe_fds[1]);
    return absl::ErrnoToStatus(errno, "fork the process that restores a setting");
  }
  std::unique_ptr<SysctlGuard> guard(new SysctlGuard(restorer, pipe_fds[1]));
  std::ofstream out(path);
  out << value << std::flush;
  if (!out) return absl::PermissionDeniedError(absl::StrCat("write ", path, "; run as root"));
  return guard;
}

SysctlGuard::~SysctlGuard() {
  close(pipe_fd_);
  while (waitpid(restorer_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace fleetblame::testing
