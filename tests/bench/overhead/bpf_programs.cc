// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/bpf_programs.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"

namespace fleetblame::testing {

std::map<uint32_t, BpfProgram> ListBpfPrograms() {
  std::map<uint32_t, BpfProgram> programs;
  uint32_t id = 0;
  while (bpf_prog_get_next_id(id, &id) == 0) {
    const int fd = bpf_prog_get_fd_by_id(id);
    if (fd < 0) continue;  // gone since
    bpf_prog_info info;
    std::memset(&info, 0, sizeof(info));
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &size) == 0) {
      programs[id] = {info.name, info.run_cnt, info.run_time_ns, info.recursion_misses};
    }
    close(fd);
  }
  return programs;
}

absl::StatusOr<std::unique_ptr<BpfRunStats>> BpfRunStats::Enable() {
  const int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
  if (fd < 0) return absl::ErrnoToStatus(errno, "switch BPF run statistics on");
  return std::unique_ptr<BpfRunStats>(new BpfRunStats(fd));
}

BpfRunStats::~BpfRunStats() { close(fd_); }

}  // namespace fleetblame::testing
