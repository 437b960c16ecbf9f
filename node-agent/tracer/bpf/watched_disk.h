// SPDX-License-Identifier: Apache-2.0
//
// What user space keeps of a disk while it is watched.
//
// Pure data. Units: bytes and IOs.
#ifndef NODE_AGENT_TRACER_BPF_WATCHED_DISK_H_
#define NODE_AGENT_TRACER_BPF_WATCHED_DISK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/disks.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

struct WatchedDisk {
  std::string name;
  fb_device entry{};   // as the programs know it
  uint32_t index = 0;  // into the kernel side's tables with a place for each disk
  DiskReader reader;   // of what the kernel counts
  DiskStat seen;       // at the end of the last window
  // What the kernel counted more than we did since the disk is watched: reads, writes, discards.
  // Under load some IO is always between the two countings.
  std::array<int64_t, 3> deficit_bytes{};

  // Of a direction: kRead, kWrite or kDiscard.
  int64_t& DeficitOf(Operation direction) {
    return deficit_bytes[static_cast<size_t>(direction) - static_cast<size_t>(Operation::kRead)];
  }
  int64_t Deficit() const { return deficit_bytes[0] + deficit_bytes[1] + deficit_bytes[2]; }
};
static_assert(Operation::kWrite == Operation(static_cast<int>(Operation::kRead) + 1));
static_assert(Operation::kDiscard == Operation(static_cast<int>(Operation::kRead) + 2));

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_WATCHED_DISK_H_
