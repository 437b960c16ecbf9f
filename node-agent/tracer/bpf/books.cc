// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/books.h"

#include "node-agent/tracer/bpf/kernel_rows.h"

namespace fleetblame::agent {

BytesByDirection BytesOf(const std::vector<Row>& rows) {
  BytesByDirection bytes;
  for (const Row& row : rows) {
    bytes[{row.key.device, DirectionOf(row.key.operation)}] += row.values.bytes;
  }
  return bytes;
}

bool EnterKernelCounts(DeviceNumber device, const DiskStat& now, const BytesByDirection& ours,
                       WatchedDisk* disk, BooksByDirection* books) {
  auto enter = [&](Operation direction, uint64_t bytes, uint64_t ios) {
    Books& entry = (*books)[{device, direction}];
    entry.kernel_bytes = bytes;
    entry.kernel_ios = ios;
    const auto recorded = ours.find({device, direction});
    disk->DeficitOf(direction) +=
        static_cast<int64_t>(bytes) - (recorded == ours.end() ? 0 : recorded->second);
  };
  const DiskStat& seen = disk->seen;
  enter(Operation::kRead, now.read_bytes - seen.read_bytes, now.read_ios - seen.read_ios);
  enter(Operation::kWrite, now.write_bytes - seen.write_bytes, now.write_ios - seen.write_ios);
  enter(Operation::kDiscard, now.discard_bytes - seen.discard_bytes,
        now.discard_ios - seen.discard_ios);
  const bool rested = seen == now;
  disk->seen = now;
  return rested;
}

std::vector<Books> CloseBooks(const std::vector<Row>& rows, BooksByDirection books) {
  for (const Row& row : rows) {
    const Operation direction = DirectionOf(row.key.operation);
    if (direction == Operation::kUnspecified) continue;
    Books& entry = books[{row.key.device, direction}];
    entry.recorded_ios += row.values.ios;
    if (row.key.confidence == Confidence::kLost) {
      entry.lost_bytes += row.values.bytes;
    } else {
      entry.recorded_bytes += row.values.bytes;
    }
  }
  std::vector<Books> closed;
  for (auto& [key, entry] : books) {
    entry.device = key.first;
    entry.direction = key.second;
    closed.push_back(entry);
  }
  return closed;
}

}  // namespace fleetblame::agent
