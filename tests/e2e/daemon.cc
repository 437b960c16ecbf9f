// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/daemon.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "absl/time/clock.h"

namespace fleetblame::testing {
namespace {

constexpr size_t kMaxLogBytes = 4 << 20;

size_t FileSize(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::vector<std::string>& argv,
                                                      const std::string& log_path) {
  size_t log_start = FileSize(log_path);
  auto child = ChildProcess::Start(argv, ChildProcess::Output::kAppend, log_path);
  if (!child.ok()) return child.status();
  return std::unique_ptr<Daemon>(new Daemon(*std::move(child), log_path, log_start));
}

absl::StatusOr<int> Daemon::Stop(int signal) {
  auto result = child_->Stop(signal);
  if (!result.ok()) return result.status();
  return result->exit_status;
}

absl::StatusOr<int> Daemon::WaitForExit() {
  auto result = child_->Wait();
  if (!result.ok()) return result.status();
  return result->exit_status;
}

std::string Daemon::Log() const {
  std::ifstream file(log_path_, std::ios::binary);
  size_t size = FileSize(log_path_);
  size_t start = std::max(log_start_, size > kMaxLogBytes ? size - kMaxLogBytes : 0);
  file.seekg(static_cast<std::streamoff>(start));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Daemon::WaitForLog(const std::string& text, absl::Duration timeout) const {
  absl::Time deadline = absl::Now() + timeout;
  while (Log().find(text) == std::string::npos) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

}  // namespace fleetblame::testing
