// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/bpf_tracer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bpf/fleetblame_abi.h"
// The skeleton uses the types above.
#include "bpf/fleetblame_bpf.skel.h"
#include "common/tag_waits.h"
#include "node-agent/tracer/bpf/cgroup_paths.h"
#include "node-agent/tracer/bpf/disks.h"
#include "node-agent/tracer/bpf/file_path.h"
#include "node-agent/tracer/bpf/host_info.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "node-agent/tracer/bpf/loader.h"
#include "node-agent/tracer/bpf/loop_files.h"
#include "node-agent/tracer/bpf/map_io.h"
#include "node-agent/tracer/bpf/privileges.h"
#include "node-agent/tracer/bpf/rwbs.h"
#include "node-agent/tracer/bpf/skipped_ios.h"
#include "node-agent/tracer/tagwait/tag_wait_tracer.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kRowBatch = 64;
constexpr uint32_t kSweepBatch = 512;
constexpr size_t kSweepStep = 16384;
constexpr uint32_t kMostSampledIos = 1'000'000;
constexpr uint64_t kLongestSoftirqNs = 100'000'000;
constexpr absl::Duration kTracePause = absl::Milliseconds(10);

uint64_t BootNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

uint32_t KernelDevice(DeviceNumber number) { return number.major << 20 | number.minor; }
DeviceNumber FromKernelDevice(uint32_t dev) { return {dev >> 20, dev & 0xfffff}; }

// Which of /sys/block/*/stat's directions an operation counts in; unspecified = in none.
Operation DirectionOf(uint8_t op) {
  switch (op) {
    case FB_OP_READ:
      return Operation::kRead;
    case FB_OP_WRITE:
    case FB_OP_WRITE_ZEROES:
    case FB_OP_SECURE_ERASE:
      return Operation::kWrite;
    case FB_OP_DISCARD:
      return Operation::kDiscard;
    default:
      return Operation::kUnspecified;
  }
}

uint32_t Index(uint32_t id) { return id & FB_ID_INDEX_MASK; }
// The next id for the same place.
uint32_t NextGeneration(uint32_t id) { return id + (1u << FB_ID_INDEX_BITS); }

void MergeValues(const RowValues& from, RowValues* to) {
  to->ios += from.ios;
  to->bytes += from.bytes;
  to->wait_ns += from.wait_ns;
  to->io_ns += from.io_ns;
  to->errors += from.errors;
  to->requeues += from.requeues;
  to->wait.Merge(from.wait);
  to->io.Merge(from.io);
}

// Rows of all but the files with most bytes forget their file.
void KeepTopFiles(size_t limit, std::vector<Row>* rows) {
  std::map<FileId, uint64_t> bytes;
  for (const Row& row : *rows) bytes[row.key.file] += row.values.bytes;
  bytes.erase(kNoFile);
  if (bytes.size() <= limit) return;
  std::vector<std::pair<uint64_t, FileId>> order;
  for (const auto& [file, sum] : bytes) order.emplace_back(sum, file);
  std::nth_element(order.begin(), order.begin() + limit, order.end(), std::greater<>());
  std::set<FileId> top;
  for (size_t i = 0; i < limit; ++i) top.insert(order[i].second);
  for (Row& row : *rows) {
    if (!top.contains(row.key.file)) row.key.file = kNoFile;
  }
}

struct WatchedDisk {
  std::string name;
  fb_device entry{};   // as the programs know it
  uint32_t index = 0;  // into the kernel's lost table
  DiskStat seen;       // at the end of the last window
  // What the kernel counted more than we did since the disk is watched: reads, writes, discards.
  // Under load some IO is always between the two countings.
  std::array<int64_t, 3> deficit_bytes{};

  int64_t Deficit() const { return deficit_bytes[0] + deficit_bytes[1] + deficit_bytes[2]; }
};

size_t DeficitIndex(Operation direction) {
  return static_cast<size_t>(direction) - static_cast<size_t>(Operation::kRead);
}
static_assert(Operation::kDiscard == Operation(static_cast<int>(Operation::kRead) + 2));

class BpfTracer final : public Tracer {
 public:
  BpfTracer(const BpfTracerOptions& options, std::unique_ptr<LoadedPrograms> programs,
            CgroupPaths cgroups)
      : options_(options),
        programs_(std::move(programs)),
        skeleton_(programs_->skeleton()),
        cgroups_(std::move(cgroups)),
        counters_seen_(FB_COUNTER_COUNT, 0),
        lost_seen_(FB_MAX_DEVICES * FB_OP_COUNT),
        skipped_seen_(FB_MAX_DEVICES * 2) {}

  ~BpfTracer() override {
    if (ring_ != nullptr) ring_buffer__free(ring_);
    if (fence_ >= 0) close(fence_);
    if (fence_inner_ >= 0) close(fence_inner_);
  }

  absl::Status Start(const KernelBtf& kernel);

  const TracerInfo& info() const override { return info_; }
  absl::Status SetDevices(const DeviceSelection& selection) override;
  absl::StatusOr<Snapshot> Collect() override;
  absl::Status SetTrace(bool on) override;
  absl::Status PollTrace(absl::Duration timeout,
                         const std::function<void(const TraceRecord&)>& sink,
                         uint64_t* dropped) override;
  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override { return OpenSymbols(); }
  uint64_t SymbolGeneration() override { return SymbolTableGeneration(); }

 private:
  absl::Status FillFreeIds(bpf_map* map, uint32_t first, uint32_t entries);
  absl::Status MapArrays();
  absl::Status MakeFence();
  absl::Status Fence();
  absl::Status Watch(const std::vector<Disk>& disks);
  absl::Status PutDevice(const fb_device& device);
  void RescanDisks();
  void KeepLoopFiles(const std::map<LoopFile, uint32_t>& files);
  absl::StatusOr<DiskStat> Baseline(const WatchedDisk& disk);
  std::vector<fb_lost> ReadLost();
  absl::Status DrainRows(uint32_t table, Snapshot* snapshot);
  void TakeSkipped(Snapshot* snapshot, std::vector<Row>* rows);
  void DrainHotRows(uint32_t table, std::vector<Row>* rows);
  void TakeRow(const fb_row_key& key, const fb_row& row, std::vector<Row>* rows);
  static void AddLost(DeviceNumber device, uint8_t op, const fb_lost& lost, Snapshot* snapshot);
  fb_skipped ReadSkipped(uint32_t cell) const;
  void AddLostRows(Snapshot* snapshot);
  void AddMissedEnd(const fb_origin& origin, Snapshot* snapshot);
  void AddMissedEnds(DeviceNumber device, WatchedDisk* disk, Snapshot* snapshot);
  void AddMissedEndsOfSkipped(DeviceNumber device, WatchedDisk* disk, Snapshot* snapshot);
  void AddBooks(Snapshot* snapshot);
  void AddCounters(Snapshot* snapshot);
  void StartTagWaits(const KernelBtf& kernel);
  absl::Status AddTagWaits(Snapshot* snapshot);
  void AddDefinitions(Snapshot* snapshot);
  void DefineStack(uint32_t id, Snapshot* snapshot);
  void DefineActor(uint32_t id, Snapshot* snapshot);
  void DefineFile(uint32_t id, Snapshot* snapshot);
  Row MakeRow(const fb_row_key& key, const fb_row& row);
  fb_row_key RowKeyOf(const fb_origin& origin, const fb_share& share);
  void NameIds(const fb_row_key& key);
  void AddRow(const fb_row_key& key, const fb_row& values, Snapshot* snapshot);
  void Sweep();
  void SweepPages();
  void SweepInodes();
  void SweepBios();
  void RemoveBios(const std::function<bool(const fb_origin&)>& match,
                  const std::function<void(const fb_origin&)>& removed);
  void SweepActs();
  uint64_t ReadCounter(uint32_t which);
  static int TakeTrace(void* context, void* data, size_t size);

  const BpfTracerOptions options_;
  std::unique_ptr<LoadedPrograms> programs_;
  std::unique_ptr<TagWaitTracer> tag_waits_;  // uses the tables of programs_; null = off
  fleetblame_bpf* const skeleton_;
  CgroupPaths cgroups_;
  MountTable mounts_;
  TracerInfo info_;

  DeviceSelection selection_;
  std::map<DeviceNumber, WatchedDisk> watched_;
  LoopFiles loop_files_;
  std::map<LoopFile, uint32_t> kept_loop_files_;  // by the device, as the kernel numbers it
  uint32_t watches_ = 0;                          // how often a disk began to be watched
  std::map<uint32_t, uint32_t> device_index_;     // kernel dev_t -> index, never reused
  int fence_ = -1;
  int fence_inner_ = -1;
  uint64_t window_start_ns_ = 0;
  uint32_t window_ = 1;

  std::vector<uint64_t> counters_seen_;
  std::vector<fb_lost> lost_seen_;
  std::vector<fb_skipped> skipped_seen_;
  // Sampled IOs of this window, and of the last one of each disk and direction in which there were
  // any, with its end.
  std::map<std::pair<DeviceNumber, Operation>, std::vector<Sample>> samples_;
  std::map<std::pair<DeviceNumber, Operation>, std::pair<uint64_t, std::vector<Sample>>>
      last_samples_;
  uint64_t missed_seen_ = 0;
  uint64_t expired_bios_ = 0;
  uint64_t missed_ends_ = 0;

  MappedArray<fb_bio_bucket> bio_buckets_;  // empty where the kernel cannot use them
  MappedArray<fb_hot_row> hot_rows_;        // likewise

  // What Snapshots have defined: the id (or key) that is known for each index.
  std::vector<bool> stacks_defined_;
  std::vector<uint32_t> actors_defined_;
  std::vector<fb_inode_key> files_defined_;
  std::vector<bool> files_have_definition_;
  // Ids in rows of this window, and those that trace records named.
  std::set<uint32_t> wanted_stacks_;
  std::set<uint32_t> wanted_actors_;
  std::set<uint32_t> wanted_files_;
  std::set<uint32_t> tag_stacks_;  // of the wanted stacks, those of tag waits

  MapCursor pages_cursor_;
  MapCursor inodes_cursor_;
  uint64_t last_bio_sweep_ns_ = 0;
  uint64_t last_act_sweep_ns_ = 0;

  ring_buffer* ring_ = nullptr;
  const std::function<void(const TraceRecord&)>* sink_ = nullptr;
  uint64_t taken_ = 0;
  uint64_t trace_dropped_seen_ = 0;
  std::mutex trace_wanted_mutex_;
  std::set<uint32_t> trace_stacks_;
  std::set<uint32_t> trace_actors_;
  std::set<uint32_t> trace_files_;
};

absl::Status BpfTracer::FillFreeIds(bpf_map* map, uint32_t first, uint32_t entries) {
  int fd = bpf_map__fd(map);
  for (uint32_t id = first; id < entries; ++id) {
    if (bpf_map_update_elem(fd, nullptr, &id, BPF_ANY) != 0) {
      return absl::InternalError(
          absl::StrCat("fill ", bpf_map__name(map), ": ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::Status BpfTracer::MapArrays() {
  const auto& config = skeleton_->rodata->config;
  if (config.bio_buckets != 0) {
    auto buckets = MappedArray<fb_bio_bucket>::Map(bpf_map__fd(skeleton_->maps.bio_buckets),
                                                   config.bio_buckets);
    if (!buckets.ok()) return buckets.status();
    bio_buckets_ = *std::move(buckets);
  }
  if (config.hot_rows != 0) {
    const size_t places = bpf_map__max_entries(skeleton_->maps.hot_rows);
    auto rows = MappedArray<fb_hot_row>::Map(bpf_map__fd(skeleton_->maps.hot_rows), places);
    if (!rows.ok()) return rows.status();
    hot_rows_ = *std::move(rows);
  }
  return absl::OkStatus();
}

// Replacing an element of a map of maps makes the kernel wait until every program that might still
// use the old one has ended: with that, every program that saw the old row table.
absl::Status BpfTracer::MakeFence() {
  fence_inner_ = bpf_map_create(BPF_MAP_TYPE_ARRAY, "fb_fence_in", 4, 4, 1, nullptr);
  if (fence_inner_ < 0) {
    return absl::InternalError(absl::StrCat("make a map: ", std::strerror(errno)));
  }
  LIBBPF_OPTS(bpf_map_create_opts, opts, .inner_map_fd = static_cast<uint32_t>(fence_inner_));
  fence_ = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "fb_fence", 4, 4, 1, &opts);
  if (fence_ < 0) {
    return absl::InternalError(absl::StrCat("make a map of maps: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status BpfTracer::Fence() {
  uint32_t zero = 0;
  if (bpf_map_update_elem(fence_, &zero, &fence_inner_, BPF_ANY) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("wait for running BPF programs: ", std::strerror(errno)));
}

absl::Status BpfTracer::Start(const KernelBtf& kernel) {
  absl::Status status =
      FillFreeIds(skeleton_->maps.free_stacks, FB_STACK_FIRST, options_.max_stacks);
  if (status.ok()) status = FillFreeIds(skeleton_->maps.free_actors, 1, options_.max_actors);
  if (status.ok()) status = FillFreeIds(skeleton_->maps.free_acts, 1, options_.max_acts);
  if (status.ok()) status = FillFreeIds(skeleton_->maps.free_files, 1, options_.max_inodes);
  if (status.ok()) status = MapArrays();
  if (status.ok()) status = MakeFence();
  if (!status.ok()) return status;
  stacks_defined_.assign(options_.max_stacks, false);
  actors_defined_.assign(options_.max_actors, 0);
  files_defined_.assign(options_.max_inodes, fb_inode_key{});
  files_have_definition_.assign(options_.max_inodes, false);

  info_.kind = "bpf";
  utsname name{};
  if (uname(&name) == 0) info_.kernel_release = name.release;
  info_.vmlinux_build_id = VmlinuxBuildId();
  info_.reasons = WritebackReasons(kernel.EnumValues("wb_reason"));

  window_start_ns_ = BootNow();
  skeleton_->data->live.epoch = window_start_ns_ / 1000000000ull;
  status = programs_->Attach();
  if (!status.ok()) return status;
  info_.limitations = programs_->limitations();
  if (options_.tag_waits) StartTagWaits(kernel);
  mounts_.Reload();
  return SetDevices(options_.devices);
}

// Starvation is told beside the blame for IO; a kernel that does not show it loses nothing else.
void BpfTracer::StartTagWaits(const KernelBtf& kernel) {
  TagProgramOptions options;
  options.tables = skeleton_->obj;
  options.config = &skeleton_->rodata->config;
  options.infer = options_.infer_tag_waits;
  auto tracer = TagWaitTracer::Create(options, kernel);
  if (!tracer.ok()) {
    info_.limitations.push_back(absl::StrCat(tracer.status().message(), "."));
    return;
  }
  tag_waits_ = *std::move(tracer);
  if (std::string cost = tag_waits_->Limitation(); !cost.empty()) {
    info_.limitations.push_back(std::move(cost));
  }
}

absl::Status BpfTracer::AddTagWaits(Snapshot* snapshot) {
  if (tag_waits_ == nullptr) return absl::OkStatus();
  absl::Status status = tag_waits_->Collect(&snapshot->tag_waits.emplace(), &snapshot->losses,
                                            &tag_stacks_, &wanted_actors_);
  KeepWaiters(
      [this](uint32_t device) { return device == 0 || watched_.contains(UnpackDevice(device)); },
      &*snapshot->tag_waits);
  wanted_stacks_.insert(tag_stacks_.begin(), tag_stacks_.end());
  return status;
}

std::vector<fb_lost> BpfTracer::ReadLost() {
  std::vector<fb_lost> cells(FB_MAX_DEVICES * FB_OP_COUNT);
  int fd = bpf_map__fd(skeleton_->maps.lost);
  for (const auto& [dev, index] : device_index_) {
    for (uint32_t op = 0; op < FB_OP_COUNT; ++op) {
      uint32_t cell = index * FB_OP_COUNT + op;
      bpf_map_lookup_elem(fd, &cell, &cells[cell]);
    }
  }
  return cells;
}

// The kernel's counters at a moment in which ours did not move, so that both start together.
absl::StatusOr<DiskStat> BpfTracer::Baseline(const WatchedDisk& disk) {
  absl::StatusOr<DiskStat> stat;
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::vector<fb_lost> before = ReadLost();
    stat = ReadDiskStat(disk.name);
    std::vector<fb_lost> after = ReadLost();
    uint32_t first = disk.index * FB_OP_COUNT;
    if (std::memcmp(&before[first], &after[first], sizeof(fb_lost) * FB_OP_COUNT) == 0) {
      std::copy(after.begin() + first, after.begin() + first + FB_OP_COUNT,
                lost_seen_.begin() + first);
      break;
    }
  }
  return stat;
}

absl::Status BpfTracer::PutDevice(const fb_device& device) {
  int fd = bpf_map__fd(skeleton_->maps.devices);
  for (uint32_t probe = 0; probe < FB_DEVICE_PROBES; ++probe) {
    uint32_t place = fb_device_place(device.dev, probe);
    fb_device there{};
    if (bpf_map_lookup_elem(fd, &place, &there) != 0) break;
    if (there.dev != 0 && there.dev != device.dev) continue;
    if (bpf_map_update_elem(fd, &place, &device, BPF_ANY) != 0) break;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      "no place for one more disk in the table of watched disks; restart the agent");
}

absl::Status BpfTracer::Watch(const std::vector<Disk>& disks) {
  std::map<DeviceNumber, WatchedDisk> next;
  std::map<LoopFile, uint32_t> files;
  for (const Disk& disk : disks) {
    uint32_t dev = KernelDevice(disk.number);
    fb_device entry{.dev = dev, .watched = 1};
    // Devices above count only if their rows are there.
    entry.upper = KernelDevice(TopMostAbove(disk, disks));
    if (disk.bios) entry.flags |= FB_DEVICE_BIOS;
    if (disk.parity) entry.flags |= FB_DEVICE_PARITY;
    bool noted = false;
    entry.writers = KernelDevice(WritersOf(disk, disks, &noted));
    if (noted) entry.flags |= FB_DEVICE_NOTED;
    if (std::optional<LoopFile> file = loop_files_.Of(disk.name); file.has_value()) {
      entry.flags |= FB_DEVICE_LOOP;
      files.emplace(*file, dev);
    }
    auto old = watched_.find(disk.number);
    if (old != watched_.end() && old->second.name == disk.name) {
      entry.index = old->second.entry.index;
      entry.watch = old->second.entry.watch;
      WatchedDisk& same = next[disk.number] = old->second;
      if (std::memcmp(&entry, &same.entry, sizeof(entry)) == 0) continue;
      // Tables of stacked devices can be changed at any time.
      if (absl::Status status = PutDevice(entry); !status.ok()) return status;
      same.entry = entry;
      continue;
    }
    if (disk.bios) {
      if (absl::Status status = programs_->AttachStacked(); !status.ok()) return status;
    }
    auto [place, fresh] = device_index_.emplace(dev, device_index_.size());
    if (place->second >= FB_MAX_DEVICES) {
      device_index_.erase(place);
      return absl::ResourceExhaustedError(absl::StrCat(
          "more than ", FB_MAX_DEVICES, " disks were watched since the start; restart the agent"));
    }
    WatchedDisk watched;
    watched.name = disk.name;
    watched.index = entry.index = place->second;
    entry.watch = ++watches_;
    watched.entry = entry;
    if (absl::Status status = PutDevice(entry); !status.ok()) return status;
    absl::StatusOr<DiskStat> stat = Baseline(watched);
    if (!stat.ok()) continue;  // the disk went away
    watched.seen = *stat;
    next[disk.number] = watched;
  }
  for (const auto& [number, disk] : watched_) {
    if (next.contains(number)) continue;
    uint32_t dev = KernelDevice(number);
    absl::Status status = PutDevice({.dev = dev, .index = disk.index});
    if (!status.ok()) return status;
  }
  watched_ = std::move(next);
  KeepLoopFiles(files);
  return absl::OkStatus();
}

// The programs know of each file behind a loop device which one it is.
void BpfTracer::KeepLoopFiles(const std::map<LoopFile, uint32_t>& files) {
  if (files == kept_loop_files_) return;
  const int fd = bpf_map__fd(skeleton_->maps.loop_files);
  auto key_of = [](const LoopFile& file) {
    return fb_loop_file{.ino = file.inode, .dev = KernelDevice(file.filesystem)};
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

absl::Status BpfTracer::SetDevices(const DeviceSelection& selection) {
  absl::StatusOr<std::vector<Disk>> disks = SelectDisks(ListDisks(), selection);
  if (!disks.ok()) return disks.status();
  if (absl::Status status = Watch(*disks); !status.ok()) return status;
  selection_ = selection;
  return absl::OkStatus();
}

// Disks come and go. One that was named and is gone is no error: it may come back.
void BpfTracer::RescanDisks() {
  std::vector<Disk> all = ListDisks();
  DeviceSelection selection = selection_;
  for (int attempt = 0; attempt < 64; ++attempt) {
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

Row BpfTracer::MakeRow(const fb_row_key& key, const fb_row& row) {
  Row result;
  result.key.dirtier_stack = key.dirtier_stack;
  result.key.issuer_stack = key.issuer_stack;
  result.key.dirtier_actor = Index(key.dirtier_actor);
  result.key.issuer_actor = Index(key.issuer_actor);
  result.key.device = FromKernelDevice(key.dev);
  result.key.partition = key.part;
  result.key.top = FromKernelDevice(key.top);
  result.key.file = key.file;
  result.key.operation = static_cast<Operation>(key.op);
  result.key.confidence = static_cast<Confidence>(key.confidence & FB_CONFIDENCE_MASK);
  result.key.reason = key.reason < info_.reasons.size() ? key.reason : 0;
  result.values.ios = row.ios;
  result.values.bytes = row.bytes;
  result.values.wait_ns = row.wait_ns;
  result.values.io_ns = row.io_ns;
  result.values.errors = row.errors;
  result.values.requeues = row.requeues;
  for (int i = 0; i < FB_HIST_BUCKETS; ++i) {
    if (row.wait[i] != 0) result.values.wait.Add(i, row.wait[i]);
    if (row.io[i] != 0) result.values.io.Add(i, row.io[i]);
  }
  return result;
}

void BpfTracer::TakeRow(const fb_row_key& key, const fb_row& row, std::vector<Row>* rows) {
  if (!watched_.contains(FromKernelDevice(key.dev))) return;
  NameIds(key);
  rows->push_back(MakeRow(key, row));
  if (uint8_t weight = key.confidence >> FB_WEIGHT_SHIFT; weight != 0) {
    const RowKey& sampled = rows->back().key;
    samples_[{sampled.device, sampled.operation}].push_back({rows->back(), uint64_t{1} << weight});
  }
}

fb_skipped BpfTracer::ReadSkipped(uint32_t cell) const {
  std::vector<fb_skipped> values(std::max(1, libbpf_num_possible_cpus()));
  fb_skipped sum{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.skipped), &cell, values.data()) != 0)
    return sum;
  for (const fb_skipped& value : values) {
    sum.ios += value.ios;
    sum.bytes += value.bytes;
  }
  return sum;
}

// Charges the IOs that were not looked at.
void BpfTracer::TakeSkipped(Snapshot* snapshot, std::vector<Row>* rows) {
  if (skeleton_->rodata->config.sample_ns == 0) return;
  for (const auto& [number, disk] : watched_) {
    for (Operation op : {Operation::kRead, Operation::kWrite}) {
      const uint32_t cell = disk.index * 2 + (op == Operation::kWrite ? 1 : 0);
      const fb_skipped now = ReadSkipped(cell);
      const fb_skipped seen = std::exchange(skipped_seen_[cell], now);
      const SkippedIos skipped{.ios = now.ios - seen.ios, .bytes = now.bytes - seen.bytes};
      // When a burst is over, the next sample may be long in coming.
      const auto key = std::make_pair(number, op);
      if (auto fresh = samples_.find(key); fresh != samples_.end())
        last_samples_[key] = {window_start_ns_, std::move(fresh->second)};
      if (skipped.bytes == 0 && skipped.ios == 0) continue;
      snapshot->losses["ios_estimated"] += skipped.ios;
      std::vector<Row> charged = ChargeSkipped(last_samples_[key].second, skipped,
                                               &snapshot->losses["ios_estimated_variance"]);
      if (charged.empty()) {
        AddLost(number, static_cast<uint8_t>(op), {.ios = skipped.ios, .bytes = skipped.bytes},
                snapshot);
      }
      std::move(charged.begin(), charged.end(), std::back_inserter(*rows));
    }
  }
  samples_.clear();
  // Until the ttl is over, ids stand for what they did.
  const uint64_t kept_ns = absl::ToInt64Nanoseconds(options_.ttl) / 2;
  std::erase_if(last_samples_,
                [&](const auto& entry) { return entry.second.first + kept_ns < window_start_ns_; });
}

// The table is no longer written: its places are free for the window after the next.
void BpfTracer::DrainHotRows(uint32_t table, std::vector<Row>* rows) {
  const uint32_t per_table = skeleton_->rodata->config.hot_rows;
  for (size_t i = 0; i < hot_rows_.size(); ++i) {
    if (i / per_table % 2 != table) continue;
    fb_hot_row& hot = hot_rows_[i];
    if (hot.used == 0) continue;
    TakeRow(hot.key, hot.row, rows);
    hot = fb_hot_row{};
  }
}

absl::Status BpfTracer::DrainRows(uint32_t table, Snapshot* snapshot) {
  int fd = bpf_map__fd(table == 0 ? skeleton_->maps.rows0 : skeleton_->maps.rows1);
  auto less = [](const fb_row_key& a, const fb_row_key& b) {
    return std::memcmp(&a, &b, sizeof(a)) < 0;
  };
  std::set<fb_row_key, decltype(less)> seen(less);
  std::vector<Row> rows;
  absl::Status status = ReadWholeMap<fb_row_key, fb_row>(
      fd, kRowBatch, [&](const fb_row_key& key, const fb_row& row) {
        // The walk may come by twice.
        if (seen.insert(key).second) TakeRow(key, row, &rows);
      });
  if (!status.ok()) return status;
  DrainHotRows(table, &rows);
  TakeSkipped(snapshot, &rows);
  for (const fb_row_key& key : seen) bpf_map_delete_elem(fd, &key);
  KeepTopFiles(options_.max_files, &rows);
  std::map<RowKey, size_t> places;
  for (Row& row : rows) {
    auto [place, fresh] = places.emplace(row.key, snapshot->rows.size());
    if (fresh) {
      wanted_files_.insert(row.key.file);
      snapshot->rows.push_back(std::move(row));
    } else {
      MergeValues(row.values, &snapshot->rows[place->second].values);
    }
  }
  return absl::OkStatus();
}

// Stacks and actors of a row want definitions.
void BpfTracer::NameIds(const fb_row_key& key) {
  wanted_stacks_.insert(key.dirtier_stack);
  wanted_stacks_.insert(key.issuer_stack);
  wanted_actors_.insert(key.dirtier_actor);
  wanted_actors_.insert(key.issuer_actor);
}

// Adds to the row of this key in a snapshot whose rows are there already.
void BpfTracer::AddRow(const fb_row_key& key, const fb_row& values, Snapshot* snapshot) {
  Row row = MakeRow(key, values);
  NameIds(key);
  wanted_files_.insert(row.key.file);
  auto same = std::find_if(snapshot->rows.begin(), snapshot->rows.end(),
                           [&](const Row& other) { return other.key == row.key; });
  if (same == snapshot->rows.end())
    snapshot->rows.push_back(std::move(row));
  else
    MergeValues(row.values, &same->values);
}

// Lost bytes are rows too, so that the rows of a window add up to what its books say.
void BpfTracer::AddLost(DeviceNumber device, uint8_t op, const fb_lost& lost, Snapshot* snapshot) {
  Row row;
  row.key.device = device;
  row.key.operation = static_cast<Operation>(op);
  row.key.confidence = Confidence::kLost;
  auto same = std::find_if(snapshot->rows.begin(), snapshot->rows.end(),
                           [&](const Row& other) { return other.key == row.key; });
  if (same == snapshot->rows.end()) {
    snapshot->rows.push_back(std::move(row));
    same = snapshot->rows.end() - 1;
  }
  same->values.bytes += lost.bytes;
  same->values.ios += lost.ios;
}

void BpfTracer::AddLostRows(Snapshot* snapshot) {
  std::vector<fb_lost> now = ReadLost();
  for (const auto& [number, disk] : watched_) {
    for (uint32_t op = 0; op < FB_OP_COUNT; ++op) {
      uint32_t cell = disk.index * FB_OP_COUNT + op;
      const fb_lost seen = std::exchange(lost_seen_[cell], now[cell]);
      const fb_lost grown = {.ios = now[cell].ios - seen.ios,
                             .bytes = now[cell].bytes - seen.bytes};
      if (grown.bytes != 0 || grown.ios != 0) AddLost(number, op, grown, snapshot);
    }
  }
}

fb_row_key BpfTracer::RowKeyOf(const fb_origin& origin, const fb_share& share) {
  fb_row_key key{};
  key.issuer_stack = origin.issuer_stack;
  key.issuer_actor = origin.issuer_actor;
  key.dev = origin.dev;
  key.part = origin.part;
  key.top = origin.flags & FB_ORIGIN_BELOW ? origin.top : 0;
  key.file = origin.file;
  key.op = origin.op;
  key.confidence = share.confidence;
  key.reason = origin.reason;
  if (share.act != 0) {
    fb_act act{};
    uint32_t index = Index(share.act);
    if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.acts), &index, &act) == 0 &&
        act.id == share.act) {
      key.dirtier_stack = act.key.stack;
      key.dirtier_actor = act.key.actor;
    } else {
      key.confidence = FB_CONF_LOST;
      key.dirtier_stack = FB_STACK_LOST;
    }
  } else if (share.confidence == FB_CONF_ISSUER) {
    key.dirtier_stack = origin.issuer_stack;
    key.dirtier_actor = origin.issuer_actor;
  }
  return key;
}

// Its bytes and who caused them are known; how long it took is not, so the IO itself counts as
// lost.
void BpfTracer::AddMissedEnd(const fb_origin& origin, Snapshot* snapshot) {
  for (uint32_t i = 0; i < std::min<uint32_t>(origin.shares, FB_SHARES); ++i) {
    fb_row values{};
    values.bytes = origin.share[i].bytes;
    if (values.bytes != 0) AddRow(RowKeyOf(origin, origin.share[i]), values, snapshot);
  }
}

// An IO whose end the kernel did not tell us stays in the table. Once its disk is idle, it ended,
// and the kernel counted it. "Idle" leaves out what the driver has given back and a softirq has not
// finished yet; so only what is older than any softirq waits, the oldest first, and no more than
// the kernel counted and we did not.
void BpfTracer::AddMissedEnds(DeviceNumber device, WatchedDisk* disk, Snapshot* snapshot) {
  const uint64_t before = BootNow() - kLongestSoftirqNs;
  if (!DiskIsIdle(disk->name)) return;
  const uint32_t dev = KernelDevice(device);
  std::vector<std::pair<uint64_t, uint64_t>> candidates;  // issued, bytes
  RemoveBios(
      [&](const fb_origin& origin) {
        if (origin.dev == dev && origin.issue_ns != 0 && origin.issue_ns < before) {
          candidates.emplace_back(origin.issue_ns, origin.bytes);
        }
        return false;
      },
      [](const fb_origin&) {});
  std::sort(candidates.begin(), candidates.end());
  uint64_t newest = 0;
  int64_t allowed = disk->Deficit();
  for (const auto& [issued, bytes] : candidates) {
    allowed -= static_cast<int64_t>(bytes);
    if (allowed < 0) break;
    newest = issued;
  }
  RemoveBios(
      [&](const fb_origin& origin) {
        return origin.dev == dev && origin.issue_ns != 0 && origin.issue_ns <= newest;
      },
      [&](const fb_origin& origin) {
        AddMissedEnd(origin, snapshot);
        ++missed_ends_;
        const Operation direction = DirectionOf(origin.op);
        if (direction == Operation::kUnspecified) return;
        disk->deficit_bytes[DeficitIndex(direction)] -= origin.bytes;
      });
}

// Of an IO that was skipped nothing is in the table. What is missing of a disk that did nothing for
// a whole window are the bytes of such IOs.
void BpfTracer::AddMissedEndsOfSkipped(DeviceNumber device, WatchedDisk* disk, Snapshot* snapshot) {
  if (skeleton_->data->live.skipped == 0 || !DiskIsIdle(disk->name)) return;
  for (Operation direction : {Operation::kRead, Operation::kWrite}) {
    int64_t& missing = disk->deficit_bytes[DeficitIndex(direction)];
    if (missing <= 0) continue;
    AddLost(device, static_cast<uint8_t>(direction),
            {.bytes = static_cast<uint64_t>(std::exchange(missing, 0))}, snapshot);
  }
}

void BpfTracer::AddBooks(Snapshot* snapshot) {
  std::map<std::pair<DeviceNumber, Operation>, Books> books;
  std::map<std::pair<DeviceNumber, Operation>, int64_t> ours;
  for (const Row& row : snapshot->rows) {
    ours[{row.key.device, DirectionOf(static_cast<uint8_t>(row.key.operation))}] +=
        row.values.bytes;
  }
  for (auto& [number, disk] : watched_) {
    absl::StatusOr<DiskStat> stat = ReadDiskStat(disk.name);
    if (!stat.ok()) continue;
    auto enter = [&, device = number](Operation direction, uint64_t bytes, uint64_t ios) {
      Books& entry = books[{device, direction}];
      entry.kernel_bytes = bytes;
      entry.kernel_ios = ios;
      disk.deficit_bytes[DeficitIndex(direction)] +=
          static_cast<int64_t>(bytes) - ours[{device, direction}];
    };
    enter(Operation::kRead, stat->read_bytes - disk.seen.read_bytes,
          stat->read_ios - disk.seen.read_ios);
    enter(Operation::kWrite, stat->write_bytes - disk.seen.write_bytes,
          stat->write_ios - disk.seen.write_ios);
    enter(Operation::kDiscard, stat->discard_bytes - disk.seen.discard_bytes,
          stat->discard_ios - disk.seen.discard_ios);
    const bool rested = disk.seen == *stat;
    disk.seen = *stat;
    if (disk.Deficit() > 0) AddMissedEnds(number, &disk, snapshot);
    if (rested) AddMissedEndsOfSkipped(number, &disk, snapshot);
  }
  for (const Row& row : snapshot->rows) {
    Operation direction = DirectionOf(static_cast<uint8_t>(row.key.operation));
    if (direction == Operation::kUnspecified) continue;
    Books& entry = books[{row.key.device, direction}];
    entry.recorded_ios += row.values.ios;
    if (row.key.confidence == Confidence::kLost) {
      entry.lost_bytes += row.values.bytes;
    } else {
      entry.recorded_bytes += row.values.bytes;
    }
  }
  for (auto& [key, entry] : books) {
    entry.device = key.first;
    entry.direction = key.second;
    snapshot->books.push_back(entry);
  }
}

uint64_t BpfTracer::ReadCounter(uint32_t which) {
  static const int kCpus = std::max(1, libbpf_num_possible_cpus());
  std::vector<uint64_t> values(kCpus);
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.counters), &which, values.data()) != 0) {
    return 0;
  }
  uint64_t sum = 0;
  for (uint64_t value : values) sum += value;
  return sum;
}

void BpfTracer::AddCounters(Snapshot* snapshot) {
  static constexpr const char* kNames[] = {
#define FB_COUNTER_NAME(name) #name,
      FB_COUNTERS(FB_COUNTER_NAME)
#undef FB_COUNTER_NAME
  };
  for (uint32_t i = 0; i < FB_COUNTER_COUNT; ++i) {
    uint64_t now = ReadCounter(i);
    uint64_t grown = now - counters_seen_[i];
    counters_seen_[i] = now;
    if (i == FB_COUNTER_bio_expired) grown += std::exchange(expired_bios_, 0);
    if (i == FB_COUNTER_end_missed) grown += std::exchange(missed_ends_, 0);
    // These two tell what tracing costs; nothing is lost by them.
    if (i == FB_COUNTER_stack_walks || i == FB_COUNTER_stack_uncached) continue;
    snapshot->losses[kNames[i]] = grown;
  }
  uint64_t missed = programs_->MissedHooks();
  snapshot->losses["hooks_missed"] = missed - missed_seen_;
  missed_seen_ = missed;
}

void BpfTracer::DefineStack(uint32_t id, Snapshot* snapshot) {
  if (id < FB_STACK_FIRST || id >= stacks_defined_.size() || stacks_defined_[id]) return;
  fb_stack stack{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.stacks), &id, &stack) != 0) return;
  StackDefinition definition;
  definition.id = id;
  definition.addresses.assign(stack.address,
                              stack.address + std::min<uint32_t>(stack.frames, FB_MAX_FRAMES));
  if (tag_waits_ != nullptr && tag_stacks_.contains(id)) {
    // From the block layer's entry outwards, as the stacks of those who issue IO.
    const size_t inner =
        tag_waits_->InnerFrames(definition.addresses.data(), definition.addresses.size());
    definition.addresses.erase(definition.addresses.begin(), definition.addresses.begin() + inner);
  }
  stacks_defined_[id] = true;
  snapshot->stacks.push_back(std::move(definition));
}

void BpfTracer::DefineActor(uint32_t id, Snapshot* snapshot) {
  uint32_t index = Index(id);
  if (index == 0 || index >= actors_defined_.size() || actors_defined_[index] == id) return;
  fb_actor actor{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.actors), &index, &actor) != 0) return;
  if (actor.id != id) return;
  ActorDefinition definition;
  definition.id = index;
  definition.comm.assign(actor.key.comm, strnlen(actor.key.comm, sizeof(actor.key.comm)));
  definition.cgroup_id = actor.key.cgroup_id;
  definition.cgroup_path =
      cgroups_.Resolve(actor.key.cgroup_id, actor.key.flags & FB_ACTOR_CGROUP_V1);
  definition.kernel_thread = actor.key.flags & FB_ACTOR_KTHREAD;
  actors_defined_[index] = id;
  snapshot->actors.push_back(std::move(definition));
}

void BpfTracer::DefineFile(uint32_t id, Snapshot* snapshot) {
  if (id == 0 || id >= files_defined_.size()) return;
  fb_file file{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.files), &id, &file) != 0) return;
  if (files_have_definition_[id] &&
      std::memcmp(&files_defined_[id], &file.key, sizeof(file.key)) == 0) {
    return;
  }
  FileDefinition definition;
  definition.id = id;
  definition.filesystem = FromKernelDevice(file.key.dev);
  definition.inode = file.key.ino;
  definition.generation = file.key.generation;
  std::string mount = mounts_.MountPoint(definition.filesystem);
  if (mount.empty()) {
    mounts_.Reload();
    mount = mounts_.MountPoint(definition.filesystem);
  }
  std::string_view names(file.path, std::min<size_t>(file.path_bytes, sizeof(file.path)));
  definition.path = BuildPath(names, file.complete, mount);
  files_defined_[id] = file.key;
  files_have_definition_[id] = true;
  snapshot->files.push_back(std::move(definition));
}

void BpfTracer::AddDefinitions(Snapshot* snapshot) {
  {
    std::lock_guard<std::mutex> lock(trace_wanted_mutex_);
    wanted_stacks_.merge(trace_stacks_);
    wanted_actors_.merge(trace_actors_);
    wanted_files_.merge(trace_files_);
    trace_stacks_.clear();
    trace_actors_.clear();
    trace_files_.clear();
  }
  cgroups_.NewWindow();
  for (uint32_t id : wanted_stacks_) DefineStack(id, snapshot);
  for (uint32_t id : wanted_actors_) DefineActor(id, snapshot);
  for (uint32_t id : wanted_files_) DefineFile(id, snapshot);
  wanted_stacks_.clear();
  wanted_actors_.clear();
  wanted_files_.clear();
  tag_stacks_.clear();
}

absl::StatusOr<Snapshot> BpfTracer::Collect() {
  RescanDisks();
  Snapshot snapshot;
  snapshot.start_boot_ns = window_start_ns_;
  fb_live& live = skeleton_->data->live;
  uint32_t old = live.active;
  live.window = ++window_;
  live.files = 0;
  live.epoch = BootNow() / 1000000000ull;
  live.active = old ^ 1;
  if (absl::Status status = Fence(); !status.ok()) return status;
  snapshot.end_boot_ns = BootNow();
  window_start_ns_ = snapshot.end_boot_ns;
  if (absl::Status status = DrainRows(old, &snapshot); !status.ok()) return status;
  AddLostRows(&snapshot);
  AddBooks(&snapshot);
  if (absl::Status status = AddTagWaits(&snapshot); !status.ok()) return status;
  AddDefinitions(&snapshot);
  Sweep();
  AddCounters(&snapshot);
  return snapshot;
}

// --- Reclaim ---

void BpfTracer::Sweep() {
  SweepPages();
  SweepInodes();
  uint64_t now = BootNow();
  uint64_t pause = absl::ToInt64Nanoseconds(options_.ttl) / 2;
  if (now - last_bio_sweep_ns_ >= pause) {
    last_bio_sweep_ns_ = now;
    SweepBios();
  }
  if (now - last_act_sweep_ns_ >= pause) {
    last_act_sweep_ns_ = now;
    SweepActs();
  }
}

void BpfTracer::SweepPages() {
  int fd = bpf_map__fd(skeleton_->maps.pages);
  uint32_t now = BootNow() / 1000000000ull;
  uint32_t ttl = absl::ToInt64Seconds(options_.ttl);
  std::vector<fb_page_key> old;
  bool finished = false;
  absl::Status status =
      WalkMap<fb_page_key, fb_page_group>(fd, kSweepBatch, kSweepStep, &pages_cursor_, &finished,
                                          [&](const fb_page_key& key, const fb_page_group& group) {
                                            if (group.epoch + ttl < now) old.push_back(key);
                                          });
  status.IgnoreError();  // the next sweep starts anew
  for (const fb_page_key& key : old) bpf_map_delete_elem(fd, &key);
}

void BpfTracer::SweepInodes() {
  int fd = bpf_map__fd(skeleton_->maps.inodes);
  int free_fd = bpf_map__fd(skeleton_->maps.free_files);
  uint32_t now = BootNow() / 1000000000ull;
  uint32_t ttl = absl::ToInt64Seconds(options_.ttl);
  std::vector<std::pair<fb_inode_key, uint32_t>> old;
  bool finished = false;
  // A storm of new files fills the table faster than the ttl empties it.
  bool full = ReadCounter(FB_COUNTER_inode_nomem) != counters_seen_[FB_COUNTER_inode_nomem];
  if (full) ttl = std::min<uint32_t>(ttl, 20);
  absl::Status status = WalkMap<fb_inode_key, fb_inode>(
      fd, kSweepBatch, full ? options_.max_inodes : kSweepStep, &inodes_cursor_, &finished,
      [&](const fb_inode_key& key, const fb_inode& inode) {
        if (inode.epoch + ttl < now) old.emplace_back(key, inode.file);
      });
  status.IgnoreError();
  for (const auto& [key, file] : old) {
    if (bpf_map_delete_elem(fd, &key) != 0) continue;
    if (file != 0) bpf_map_update_elem(free_fd, nullptr, &file, BPF_ANY);
  }
}

// Takes the bios that match out of both tables.
void BpfTracer::RemoveBios(const std::function<bool(const fb_origin&)>& match,
                           const std::function<void(const fb_origin&)>& removed) {
  int fd = bpf_map__fd(skeleton_->maps.origins);
  for (uint32_t bucket = 0; bucket < bio_buckets_.size(); ++bucket) {
    for (uint32_t way = 0; way < FB_BIO_WAYS; ++way) {
      std::atomic_ref<fb_u64> bio(bio_buckets_[bucket].bio[way]);
      fb_u64 address = bio.load();
      if (address == 0) continue;
      uint32_t place = bucket * FB_BIO_WAYS + way;
      fb_origin origin{};
      // Without a device: just taken, not yet filled in.
      if (bpf_map_lookup_elem(fd, &place, &origin) != 0 || origin.dev == 0) continue;
      if (!match(origin)) continue;
      fb_origin now{};
      if (bpf_map_lookup_elem(fd, &place, &now) != 0 || now.queue_ns != origin.queue_ns) continue;
      if (bio.compare_exchange_strong(address, 0)) removed(origin);
    }
  }
  int spilled = bpf_map__fd(skeleton_->maps.bios);
  std::vector<std::pair<uint64_t, fb_origin>> keys;
  absl::Status status = ReadWholeMap<uint64_t, fb_origin>(
      spilled, kSweepBatch, [&](const uint64_t& key, const fb_origin& origin) {
        if (match(origin)) keys.emplace_back(key, origin);
      });
  status.IgnoreError();
  for (const auto& [key, origin] : keys) {
    fb_origin now{};
    if (bpf_map_lookup_elem(spilled, &key, &now) != 0 || now.queue_ns != origin.queue_ns) continue;
    if (bpf_map_delete_elem(spilled, &key) == 0) removed(origin);
  }
}

// Bios that end without ever becoming a request (an error, a retry without waiting, a stacking
// driver) leave their entry behind. Those that were issued are left to AddMissedEnds.
void BpfTracer::SweepBios() {
  uint64_t now = BootNow();
  uint64_t ttl = absl::ToInt64Nanoseconds(options_.ttl);
  RemoveBios(
      [&](const fb_origin& origin) { return origin.issue_ns == 0 && origin.queue_ns + ttl < now; },
      [&](const fb_origin&) { ++expired_bios_; });
}

// Acts and actors are kept as long as there is room: a page may wait for its IO much longer than
// any thread lives. Only when a table is more than half full, what was not used for the ttl goes.
void BpfTracer::SweepActs() {
  uint32_t now = BootNow() / 1000000000ull;
  uint32_t ttl = absl::ToInt64Seconds(options_.ttl);
  int acts = bpf_map__fd(skeleton_->maps.acts);
  int actors = bpf_map__fd(skeleton_->maps.actors);
  std::vector<fb_act> idle_acts;
  std::vector<bool> actor_in_use(options_.max_actors, false);
  size_t used_acts = 0;
  absl::Status status =
      ReadWholeMap<uint32_t, fb_act>(acts, kSweepBatch, [&](const uint32_t&, const fb_act& act) {
        if (act.id == 0) return;
        ++used_acts;
        if (act.epoch + ttl < now) {
          idle_acts.push_back(act);
        } else if (Index(act.key.actor) < actor_in_use.size()) {
          actor_in_use[Index(act.key.actor)] = true;
        }
      });
  if (!status.ok()) return;
  bool reclaim_acts = used_acts > options_.max_acts / 2;
  for (fb_act& act : idle_acts) {
    if (!reclaim_acts) {
      if (Index(act.key.actor) < actor_in_use.size()) actor_in_use[Index(act.key.actor)] = true;
      continue;
    }
    bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.act_ids), &act.key);
    uint32_t index = Index(act.id);
    uint32_t next = NextGeneration(act.id);
    fb_act empty{};
    bpf_map_update_elem(acts, &index, &empty, BPF_ANY);
    bpf_map_update_elem(bpf_map__fd(skeleton_->maps.free_acts), nullptr, &next, BPF_ANY);
  }
  std::vector<fb_actor> idle_actors;
  size_t used_actors = 0;
  status = ReadWholeMap<uint32_t, fb_actor>(actors, kSweepBatch,
                                            [&](const uint32_t& index, const fb_actor& actor) {
                                              if (actor.id == 0) return;
                                              ++used_actors;
                                              if (actor.epoch + ttl < now && !actor_in_use[index])
                                                idle_actors.push_back(actor);
                                            });
  if (!status.ok() || used_actors <= options_.max_actors / 2) return;
  for (fb_actor& actor : idle_actors) {
    bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.actor_ids), &actor.key);
    uint32_t index = Index(actor.id);
    uint32_t next = NextGeneration(actor.id);
    fb_actor empty{};
    bpf_map_update_elem(actors, &index, &empty, BPF_ANY);
    bpf_map_update_elem(bpf_map__fd(skeleton_->maps.free_actors), nullptr, &next, BPF_ANY);
  }
}

// --- Trace mode ---

absl::Status BpfTracer::SetTrace(bool on) {
  skeleton_->data->live.trace = on ? 1 : 0;
  return absl::OkStatus();
}

int BpfTracer::TakeTrace(void* context, void* data, size_t size) {
  auto* self = static_cast<BpfTracer*>(context);
  if (size < sizeof(fb_trace) || self->sink_ == nullptr) return 0;
  const auto* raw = static_cast<const fb_trace*>(data);
  TraceRecord record;
  record.complete_boot_ns = raw->complete_ns;
  record.device = FromKernelDevice(raw->dev);
  record.sector = raw->sector;
  record.bytes = raw->bytes;
  record.operation = static_cast<Operation>(raw->op);
  record.rwbs = RwbsText(raw->op, raw->opf);
  record.wait_ns = raw->wait_ns;
  record.io_ns = raw->io_ns;
  record.error = BlockErrorNumber(raw->error);
  record.confidence = static_cast<Confidence>(raw->confidence);
  record.reason = raw->reason < self->info_.reasons.size() ? raw->reason : 0;
  record.dirtier_stack = raw->dirtier_stack;
  record.issuer_stack = raw->issuer_stack;
  record.dirtier_actor = Index(raw->dirtier_actor);
  record.issuer_actor = Index(raw->issuer_actor);
  record.dirtier_tid = raw->dirtier_tid;
  record.issuer_tid = raw->issuer_tid;
  record.file = raw->file;
  record.requeues = raw->requeues;
  record.merged_bios = raw->merged_bios;
  record.other_bytes = raw->other_bytes;
  {
    std::lock_guard<std::mutex> lock(self->trace_wanted_mutex_);
    self->trace_stacks_.insert(raw->dirtier_stack);
    self->trace_stacks_.insert(raw->issuer_stack);
    self->trace_actors_.insert(raw->dirtier_actor);
    self->trace_actors_.insert(raw->issuer_actor);
    self->trace_files_.insert(raw->file);
  }
  ++self->taken_;
  (*self->sink_)(record);
  return 0;
}

absl::Status BpfTracer::PollTrace(absl::Duration timeout,
                                  const std::function<void(const TraceRecord&)>& sink,
                                  uint64_t* dropped) {
  if (ring_ == nullptr) {
    ring_ = ring_buffer__new(bpf_map__fd(skeleton_->maps.trace_ring), TakeTrace, this, nullptr);
    if (ring_ == nullptr) {
      return absl::InternalError(absl::StrCat("open the trace ring: ", std::strerror(errno)));
    }
    trace_dropped_seen_ = ReadCounter(FB_COUNTER_trace_dropped);
  }
  sink_ = &sink;
  taken_ = 0;
  absl::Time deadline = absl::Now() + timeout;
  absl::Status status;
  // Programs do not wake the reader, because a wake-up costs more than the record: look now and
  // then.
  while (true) {
    int got = ring_buffer__consume(ring_);
    if (got < 0 && got != -EINTR) {
      status = absl::InternalError(absl::StrCat("read the trace ring: ", std::strerror(-got)));
      break;
    }
    absl::Duration left = deadline - absl::Now();
    if (taken_ > 0 || left <= absl::ZeroDuration()) break;
    absl::SleepFor(std::min(left, kTracePause));
  }
  sink_ = nullptr;
  uint64_t drops = ReadCounter(FB_COUNTER_trace_dropped);
  if (dropped != nullptr) *dropped += drops - trace_dropped_seen_;
  trace_dropped_seen_ = drops;
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tracer>> CreateBpfTracer(const BpfTracerOptions& options) {
  if (options.max_stacks < 16 || options.max_actors < 16 || options.max_acts < 16 ||
      options.max_inodes < 16 || options.max_rows < 16 || options.max_bios < 16) {
    return absl::InvalidArgumentError("a table of the tracer is set to fewer than 16 entries");
  }
  if (options.sample_above > kMostSampledIos) {
    return absl::InvalidArgumentError(absl::StrCat("sample_above is at most ", kMostSampledIos,
                                                   " IOs a second and CPU; 0 = never sample"));
  }
  if (std::max(options.max_actors, options.max_acts) > FB_ID_INDEX_MASK) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_actors and max_acts can be at most ", FB_ID_INDEX_MASK));
  }
  if (absl::Status status = CheckPrivileges(); !status.ok()) return status;
  absl::StatusOr<KernelBtf> kernel = KernelBtf::Load();
  if (!kernel.ok()) return kernel.status();
  auto programs = LoadedPrograms::Load(options, *kernel);
  if (!programs.ok()) return programs.status();
  auto tracer = std::make_unique<BpfTracer>(options, std::move(*programs),
                                            CgroupPaths::ForThisHost(CgroupV1Controller()));
  if (absl::Status status = tracer->Start(*kernel); !status.ok()) return status;
  return std::unique_ptr<Tracer>(std::move(tracer));
}

}  // namespace fleetblame::agent
