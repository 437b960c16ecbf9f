// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/watched_disks.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/tracer/bpf/kernel_rows.h"
#include "node-agent/tracer/bpf/loader.h"

namespace fleetblame::agent {
namespace {

constexpr int kBaselineAttempts = 20;
constexpr int kRescanAttempts = 64;

// What the programs are told of a disk; its index and watch are still to be set.
fb_device EntryOf(const Disk& disk, const std::vector<Disk>& disks) {
  fb_device entry{.dev = PackDevice(disk.number), .watched = 1};
  // Devices above count only if their rows are there.
  entry.upper = PackDevice(TopMostAbove(disk, disks));
  if (disk.bios) entry.flags |= FB_DEVICE_BIOS;
  if (disk.head) entry.flags |= FB_DEVICE_HEAD;
  if (disk.parity) entry.flags |= FB_DEVICE_PARITY;
  bool noted = false;
  entry.writers = PackDevice(WritersOf(disk, disks, &noted));
  if (noted) entry.flags |= FB_DEVICE_NOTED;
  return entry;
}

}  // namespace

WatchedDisks::WatchedDisks(LoadedPrograms* programs)
    : programs_(programs),
      skeleton_(programs->skeleton()),
      lost_seen_(FB_MAX_DEVICES * FB_OP_COUNT) {}

absl::Status WatchedDisks::Select(const DeviceSelection& selection) {
  absl::StatusOr<std::vector<Disk>> disks = SelectDisks(ListDisks(), selection);
  if (!disks.ok()) return disks.status();
  if (absl::Status status = Watch(*disks); !status.ok()) return status;
  selection_ = selection;
  return absl::OkStatus();
}

void WatchedDisks::Rescan() {
  std::vector<Disk> all = ListDisks();
  DeviceSelection selection = selection_;
  for (int attempt = 0; attempt < kRescanAttempts; ++attempt) {
    absl::StatusOr<std::vector<Disk>> disks = SelectDisks(all, selection);
    if (disks.ok()) {
      Watch(*disks).IgnoreError();
      return;
    }
    // Leave out the patterns that match nothing now.
    std::vector<std::string> kept;
    for (const std::string& pattern : selection.patterns) {
      DeviceSelection one{{pattern}};
      if (SelectDisks(all, one).ok()) kept.push_back(pattern);
    }
    if (kept.empty() || kept.size() == selection.patterns.size()) {
      Watch({}).IgnoreError();
      return;
    }
    selection.patterns = kept;
  }
}

absl::Status WatchedDisks::Watch(const std::vector<Disk>& disks) {
  std::map<DeviceNumber, WatchedDisk> next;
  std::map<LoopFile, uint32_t> files;
  for (const Disk& disk : disks) {
    fb_device entry = EntryOf(disk, disks);
    if (entry.upper != 0) skeleton_->data->live.stacks = 1;
    if (std::optional<LoopFile> file = loop_files_.Of(disk.name); file.has_value()) {
      entry.flags |= FB_DEVICE_LOOP;
      files.emplace(*file, entry.dev);
    }
    auto old = disks_.find(disk.number);
    if (old != disks_.end() && old->second.name == disk.name) {
      entry.index = old->second.entry.index;
      entry.watch = old->second.entry.watch;
      WatchedDisk& same = next[disk.number] = old->second;
      if (std::memcmp(&entry, &same.entry, sizeof(entry)) == 0) continue;
      // Tables of stacked devices can be changed at any time.
      if (absl::Status status = Put(entry); !status.ok()) return status;
      same.entry = entry;
      continue;
    }
    auto watched = BeginToWatch(disk, entry);
    if (!watched.ok()) return watched.status();
    if (watched->has_value()) next[disk.number] = **std::move(watched);
  }
  for (const auto& [number, disk] : disks_) {
    if (next.contains(number)) continue;
    absl::Status status = Put({.dev = PackDevice(number), .index = disk.index});
    if (!status.ok()) return status;
  }
  disks_ = std::move(next);
  KeepLoopFiles(files);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<WatchedDisk>> WatchedDisks::BeginToWatch(const Disk& disk,
                                                                      fb_device entry) {
  if (disk.bios || disk.head) {
    if (absl::Status status = programs_->AttachStacked(); !status.ok()) return status;
  }
  auto [place, fresh] = index_.emplace(entry.dev, index_.size());
  if (place->second >= FB_MAX_DEVICES) {
    index_.erase(place);
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", FB_MAX_DEVICES, " disks were watched since the start; restart the agent"));
  }
  WatchedDisk watched;
  watched.name = disk.name;
  watched.reader = DiskReader(disk);
  watched.index = entry.index = place->second;
  entry.watch = ++watches_;
  watched.entry = entry;
  if (absl::Status status = Put(entry); !status.ok()) return status;
  absl::StatusOr<DiskStat> stat = Baseline(&watched);
  if (!stat.ok()) return std::nullopt;
  watched.seen = *stat;
  return watched;
}

absl::Status WatchedDisks::Put(const fb_device& device) {
  const int fd = bpf_map__fd(skeleton_->maps.devices);
  for (uint32_t probe = 0; probe < FB_DEVICE_PROBES; ++probe) {
    const uint32_t place = fb_device_place(device.dev, probe);
    fb_device there{};
    if (bpf_map_lookup_elem(fd, &place, &there) != 0) break;
    if (there.dev != 0 && there.dev != device.dev) continue;
    if (bpf_map_update_elem(fd, &place, &device, BPF_ANY) != 0) break;
    ++skeleton_->data->live.devices_changed;  // what the programs remember of it is over
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      "no place for one more disk in the table of watched disks; restart the agent");
}

// The programs know of each file behind a loop device which one it is.
void WatchedDisks::KeepLoopFiles(const std::map<LoopFile, uint32_t>& files) {
  if (files == kept_loop_files_) return;
  const int fd = bpf_map__fd(skeleton_->maps.loop_files);
  auto key_of = [](const LoopFile& file) {
    return fb_loop_file{.ino = file.inode, .dev = PackDevice(file.filesystem)};
  };
  for (const auto& [file, dev] : kept_loop_files_) {
    const fb_loop_file key = key_of(file);
    bpf_map_delete_elem(fd, &key);
  }
  for (const auto& [file, dev] : files) {
    const fb_loop_file key = key_of(file);
    const fb_loop loop{.offset = file.offset_bytes, .dev = dev};
    bpf_map_update_elem(fd, &key, &loop, BPF_ANY);
  }
  kept_loop_files_ = files;
  skeleton_->data->live.loops = !files.empty();
}

// The kernel's counters at a moment in which ours did not move, so that both start together.
absl::StatusOr<DiskStat> WatchedDisks::Baseline(WatchedDisk* disk) {
  absl::StatusOr<DiskStat> stat;
  for (int attempt = 0; attempt < kBaselineAttempts; ++attempt) {
    std::vector<fb_lost> before = ReadLost();
    stat = disk->reader.Read();
    std::vector<fb_lost> after = ReadLost();
    const uint32_t first = disk->index * FB_OP_COUNT;
    if (std::memcmp(&before[first], &after[first], sizeof(fb_lost) * FB_OP_COUNT) == 0) {
      std::copy(after.begin() + first, after.begin() + first + FB_OP_COUNT,
                lost_seen_.begin() + first);
      break;
    }
  }
  return stat;
}

std::vector<fb_lost> WatchedDisks::ReadLost() {
  std::vector<fb_lost> cells(FB_MAX_DEVICES * FB_OP_COUNT);
  const int fd = bpf_map__fd(skeleton_->maps.lost);
  for (const auto& [dev, index] : index_) {
    for (uint32_t op = 0; op < FB_OP_COUNT; ++op) {
      const uint32_t cell = index * FB_OP_COUNT + op;
      bpf_map_lookup_elem(fd, &cell, &cells[cell]);
    }
  }
  return cells;
}

void WatchedDisks::AddLostRows(std::vector<Row>* rows) {
  std::vector<fb_lost> now = ReadLost();
  for (const auto& [number, disk] : disks_) {
    for (uint32_t op = 0; op < FB_OP_COUNT; ++op) {
      const uint32_t cell = disk.index * FB_OP_COUNT + op;
      const fb_lost seen = std::exchange(lost_seen_[cell], now[cell]);
      const fb_lost grown = {.ios = now[cell].ios - seen.ios,
                             .bytes = now[cell].bytes - seen.bytes,
                             .errors = now[cell].errors - seen.errors};
      if (grown.bytes != 0 || grown.ios != 0) {
        AddLost(number, static_cast<Operation>(op), grown, rows);
      }
    }
  }
}

SkippedIos WatchedDisks::ReadSkipped(const WatchedDisk& disk, SkippedKind kind) const {
  static_assert(static_cast<int>(SkippedKind::kRead) == FB_SKIPPED_READ);
  static_assert(static_cast<int>(SkippedKind::kDirectWrite) == FB_SKIPPED_DIRECT_WRITE);
  static_assert(static_cast<int>(SkippedKind::kPageWrite) == FB_SKIPPED_PAGE_WRITE);
  const uint32_t cell = disk.index * FB_SKIPPED_KINDS + static_cast<uint32_t>(kind);
  std::vector<fb_skipped> values(std::max(1, libbpf_num_possible_cpus()));
  SkippedIos sum;
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.skipped), &cell, values.data()) != 0) {
    return sum;
  }
  for (const fb_skipped& value : values) {
    sum.ios += value.ios;
    sum.bytes += value.bytes;
  }
  return sum;
}

}  // namespace fleetblame::agent
