// SPDX-License-Identifier: Apache-2.0
//
// The disks of this host: what there is, which of them a DeviceSelection means, and what the kernel
// counted for each.
//
// Threading: pure functions and reads of /sys; safe from any thread.
// Units: `_bytes`; the kernel counts sectors of 512 bytes.
// Errors: NOT_FOUND for a pattern without glob characters that matches no disk.
#ifndef NODE_AGENT_TRACER_BPF_DISKS_H_
#define NODE_AGENT_TRACER_BPF_DISKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

struct Disk {
  std::string name;  // kernel name, as in /sys/block
  DeviceNumber number;
  // Takes bios and makes no requests of its own: device mapper, md, zram, pmem.
  bool bios = false;
  // Head of a multipath NVMe namespace: its requests are those of its paths, which have no device
  // numbers and so are no disks of their own.
  bool head = false;
  // Disks and partitions to which it passes its IO on, by name; empty for one that does not.
  std::vector<std::string> lower;
  // Devices that hold the whole disk, by name.
  std::vector<std::string> holders;
  // Writes parity besides what it was given (RAID 4, 5, 6).
  bool parity = false;
};

// All whole disks, ordered by name. `sys_block` is /sys/block but for tests.
std::vector<Disk> ListDisks(const std::string& sys_block = "/sys/block");

// The disks that `selection` means. No patterns: all but ram disks, zram among them.
absl::StatusOr<std::vector<Disk>> SelectDisks(const std::vector<Disk>& disks,
                                              const DeviceSelection& selection);

// The top-most device of the one chain of `disks` that stands on `disk` as a whole; the disk itself
// where the chain forks, {0, 0} when nothing stands on it.
DeviceNumber TopMostAbove(const Disk& disk, const std::vector<Disk>& disks);

// The stacked device for whose writers drivers write to `disk` of their own (parity, old blocks for
// a snapshot, tables of a pool); {0, 0} when there is none. `noted`: writes to `disk` itself lead
// to such ones.
DeviceNumber WritersOf(const Disk& disk, const std::vector<Disk>& disks, bool* noted);

struct DiskStat {
  uint64_t read_ios = 0;
  uint64_t read_bytes = 0;
  uint64_t write_ios = 0;
  uint64_t write_bytes = 0;
  uint64_t discard_ios = 0;
  uint64_t discard_bytes = 0;
  bool operator==(const DiskStat&) const = default;
};

// Parses a line of /sys/block/NAME/stat; kernels before 4.18 have no discard fields.
absl::StatusOr<DiskStat> ParseDiskStat(std::string_view text);
absl::StatusOr<DiskStat> ReadDiskStat(const std::string& name);

// No request of the disk is on its way. False when that cannot be told.
bool DiskIsIdle(const std::string& name);

// The paths of a multipath head ("nvme0c0n1", "nvme0c1n1" of "nvme0n1") at present, by name.
std::vector<std::string> PathsOfHead(const std::string& head,
                                     const std::string& sys_block = "/sys/block");

// Whether the kernel counts the IOs of a multipath head as the head's (since 6.4), or only as those
// of its paths.
bool HeadIsCounted(const std::string& head, const std::string& sys_block = "/sys/block");

// What the paths of one head have counted together, also those that are gone: of these as much as
// was last seen.
class PathSums {
 public:
  DiskStat Add(const std::map<std::string, DiskStat>& now);

 private:
  std::map<std::string, DiskStat> last_;
  DiskStat gone_;
};

// Reads what the kernel counts of one disk, wherever it does so.
class DiskReader {
 public:
  DiskReader() = default;
  explicit DiskReader(const Disk& disk)
      : name_(disk.name), on_paths_(disk.head && !HeadIsCounted(disk.name)) {}
  absl::StatusOr<DiskStat> Read();
  bool IsIdle() const;

 private:
  std::string name_;
  bool on_paths_ = false;
  PathSums sums_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_DISKS_H_
