// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/process_usage.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::testing {

absl::StatusOr<ProcessUsage> UsageOf(pid_t pid) {
  std::string stat;
  std::ifstream stat_file(absl::StrCat("/proc/", pid, "/stat"));
  if (!std::getline(stat_file, stat)) return absl::NotFoundError("the process is gone");
  // The name in parentheses may hold anything; user and system time are the 12th and 13th field
  // after it.
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string field;
  ProcessUsage usage;
  for (int i = 1; i <= 13 && fields >> field; ++i) {
    if (i >= 12) usage.cpu_seconds += std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string key; status >> key;) {
    uint64_t value = 0;
    if (key == "VmRSS:" && status >> value) usage.resident_bytes = value * 1024;
    if (key == "VmHWM:" && status >> value) usage.peak_resident_bytes = value * 1024;
    if (key == "Threads:" && status >> value) usage.threads = static_cast<int>(value);
    std::getline(status, field);
  }
  return usage;
}

}  // namespace fleetblame::testing
