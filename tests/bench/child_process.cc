// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fleetblame::bench {

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command,
                                                 const std::string& log_path) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0)
    return absl::UnavailableError(absl::StrCat("open ", log_path, ": ", strerror(errno)));
  pid_t pid = fork();
  if (pid == 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(log);
  if (pid < 0) return absl::UnavailableError(absl::StrCat("fork: ", strerror(errno)));
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess::~ChildProcess() { Stop(); }

absl::StatusOr<ProcessUsage> ChildProcess::Usage() const {
  std::string stat;
  std::ifstream stat_file(absl::StrCat("/proc/", pid_, "/stat"));
  if (!std::getline(stat_file, stat)) return absl::NotFoundError("the process is gone");
  // The name in parentheses may hold anything; user and system time are the 12th and 13th field
  // after it.
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string field;
  ProcessUsage usage;
  for (int i = 1; i <= 13 && fields >> field; ++i) {
    if (i >= 12) usage.cpu_seconds += std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string key; status >> key;) {
    uint64_t value = 0;
    if (key == "VmRSS:" && status >> value) usage.resident_bytes = value * 1024;
    if (key == "VmHWM:" && status >> value) usage.peak_resident_bytes = value * 1024;
    if (key == "Threads:" && status >> value) usage.threads = static_cast<int>(value);
    std::getline(status, field);
  }
  return usage;
}

bool ChildProcess::Running() {
  if (pid_ < 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  pid_ = -1;
  return false;
}

int ChildProcess::Stop() {
  if (pid_ < 0) return 0;
  kill(pid_, SIGTERM);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int FreePort() {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

}  // namespace fleetblame::bench
