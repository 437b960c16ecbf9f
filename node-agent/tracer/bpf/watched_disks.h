// SPDX-License-Identifier: Apache-2.0
//
// Which disks are watched: keeps the kernel side's table of devices, and that of the files behind
// loop devices, equal to what a selection means among the disks that there are now. Also reads what
// the kernel side counts by disk.
//
// Threading: one thread.
// Units: bytes and IOs; counts are since the tracer started.
// Errors: NOT_FOUND for a pattern that matches no disk; RESOURCE_EXHAUSTED when a table has no
// place for one more disk.
#ifndef NODE_AGENT_TRACER_BPF_WATCHED_DISKS_H_
#define NODE_AGENT_TRACER_BPF_WATCHED_DISKS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/disks.h"
#include "node-agent/tracer/bpf/loop_files.h"
#include "node-agent/tracer/bpf/skipped_ios.h"
#include "node-agent/tracer/bpf/watched_disk.h"
#include "node-agent/tracer/tracer.h"

struct fleetblame_bpf;

namespace fleetblame::agent {

class LoadedPrograms;

class WatchedDisks {
 public:
  explicit WatchedDisks(LoadedPrograms* programs);

  // Watches what matches from now on; the old selection stays if this fails.
  absl::Status Select(const DeviceSelection& selection);
  // Disks come and go. One that was named and is gone is no error: it may come back.
  void Rescan();

  std::map<DeviceNumber, WatchedDisk>& all() { return disks_; }
  const std::map<DeviceNumber, WatchedDisk>& all() const { return disks_; }
  bool Contains(DeviceNumber number) const { return disks_.contains(number); }

  // Adds a row for what the kernel side lost of a disk since the last call.
  void AddLostRows(std::vector<Row>* rows);

  // How many IOs of a disk and kind were skipped since the start.
  SkippedIos ReadSkipped(const WatchedDisk& disk, SkippedKind kind) const;

 private:
  absl::Status Watch(const std::vector<Disk>& disks);
  // Nothing for a disk that has gone away meanwhile.
  absl::StatusOr<std::optional<WatchedDisk>> BeginToWatch(const Disk& disk, fb_device entry);
  absl::Status Put(const fb_device& device);
  void KeepLoopFiles(const std::map<LoopFile, uint32_t>& files);
  absl::StatusOr<DiskStat> Baseline(WatchedDisk* disk);
  std::vector<fb_lost> ReadLost();

  LoadedPrograms* const programs_;
  fleetblame_bpf* const skeleton_;
  DeviceSelection selection_;
  std::map<DeviceNumber, WatchedDisk> disks_;
  LoopFiles loop_files_;
  std::map<LoopFile, uint32_t> kept_loop_files_;  // by the device, as the kernel numbers it
  uint32_t watches_ = 0;                          // how often a disk began to be watched
  std::map<uint32_t, uint32_t> index_;            // kernel dev_t -> index, never reused
  std::vector<fb_lost> lost_seen_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_WATCHED_DISKS_H_
