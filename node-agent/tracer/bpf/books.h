// SPDX-License-Identifier: Apache-2.0
//
// The books of a window: for each watched disk and direction what the kernel counted, beside what
// the rows say.
//
// Pure functions. Units: bytes and IOs.
#ifndef NODE_AGENT_TRACER_BPF_BOOKS_H_
#define NODE_AGENT_TRACER_BPF_BOOKS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "node-agent/tracer/bpf/disks.h"
#include "node-agent/tracer/bpf/watched_disk.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

using BooksByDirection = std::map<std::pair<DeviceNumber, Operation>, Books>;
using BytesByDirection = std::map<std::pair<DeviceNumber, Operation>, int64_t>;

BytesByDirection BytesOf(const std::vector<Row>& rows);

// Enters what the kernel counted of a disk since the last time, and what of it is not in the rows
// (`ours`). Returns whether the disk did nothing at all.
bool EnterKernelCounts(DeviceNumber device, const DiskStat& now, const BytesByDirection& ours,
                       WatchedDisk* disk, BooksByDirection* books);

// Enters the rows, those of lost bytes apart.
std::vector<Books> CloseBooks(const std::vector<Row>& rows, BooksByDirection books);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_BOOKS_H_
