// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/privileges.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "absl/strings/match.h"

namespace fleetblame::agent {
namespace {

bool HasCapability(uint64_t set, int capability) { return (set >> capability) & 1; }

}  // namespace

absl::Status CheckPrivileges() {
  std::ifstream lockdown("/sys/kernel/security/lockdown");
  std::string mode((std::istreambuf_iterator<char>(lockdown)), std::istreambuf_iterator<char>());
  if (absl::StrContains(mode, "[confidentiality]")) {
    return absl::FailedPreconditionError(
        "kernel lockdown is in confidentiality mode, which forbids BPF to read kernel memory; boot "
        "with lockdown=integrity or without lockdown");
  }
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!absl::StartsWith(line, "CapEff:")) continue;
    uint64_t set = strtoull(line.c_str() + 7, nullptr, 16);
    constexpr int kSysAdmin = 21, kPerfmon = 38, kBpf = 39;
    bool enough =
        HasCapability(set, kSysAdmin) || (HasCapability(set, kPerfmon) && HasCapability(set, kBpf));
    if (!enough) {
      return absl::PermissionDeniedError(
          "no privilege to load BPF programs; run as root, or give the program CAP_BPF and "
          "CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8)");
    }
  }
  return absl::OkStatus();
}

std::string CgroupV1Controller() {
  std::ifstream file("/proc/cgroups");
  std::string line;
  std::set<std::string> mounted;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name;
    int hierarchy = 0;
    if (fields >> name >> hierarchy && hierarchy > 0) mounted.insert(name);
  }
  for (const char* name : {"memory", "blkio", "pids", "cpu"}) {
    if (mounted.contains(name)) return name;
  }
  return "";
}

}  // namespace fleetblame::agent
