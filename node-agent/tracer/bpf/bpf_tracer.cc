// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/bpf_tracer.h"

#include <sys/utsname.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/fleetblame_abi.h"
// The skeleton uses the types above.
#include "bpf/fleetblame_bpf.skel.h"
#include "common/tag_waits.h"
#include "node-agent/host/clocks.h"
#include "node-agent/tracer/bpf/bio_table.h"
#include "node-agent/tracer/bpf/books.h"
#include "node-agent/tracer/bpf/cgroup_paths.h"
#include "node-agent/tracer/bpf/definitions.h"
#include "node-agent/tracer/bpf/disks.h"
#include "node-agent/tracer/bpf/host_info.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "node-agent/tracer/bpf/kernel_rows.h"
#include "node-agent/tracer/bpf/loader.h"
#include "node-agent/tracer/bpf/loss_counters.h"
#include "node-agent/tracer/bpf/missed_ends.h"
#include "node-agent/tracer/bpf/privileges.h"
#include "node-agent/tracer/bpf/reclaim.h"
#include "node-agent/tracer/bpf/row_tables.h"
#include "node-agent/tracer/bpf/sampled_ios.h"
#include "node-agent/tracer/bpf/trace_reader.h"
#include "node-agent/tracer/bpf/unseen_pages.h"
#include "node-agent/tracer/bpf/watched_disks.h"
#include "node-agent/tracer/tagwait/tag_wait_tracer.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kMostSampledIos = 1'000'000;

class BpfTracer final : public Tracer {
 public:
  BpfTracer(const BpfTracerOptions& options, std::unique_ptr<LoadedPrograms> programs,
            TracerInfo info)
      : options_(options),
        programs_(std::move(programs)),
        skeleton_(programs_->skeleton()),
        info_(std::move(info)),
        counters_(programs_.get()),
        rows_(skeleton_),
        bios_(skeleton_),
        disks_(programs_.get()),
        // Until the ttl is over, ids stand for what they did.
        samples_(absl::ToInt64Nanoseconds(options.ttl) / 2),
        missed_ends_(skeleton_, &bios_, &counters_),
        definitions_(skeleton_, options, CgroupPaths::ForThisHost(CgroupV1Controller())),
        reclaimer_(skeleton_, options, &bios_, &counters_),
        trace_(skeleton_, info_.reasons.size(), &counters_, &definitions_) {}

  absl::Status Start(const KernelBtf& kernel);

  const TracerInfo& info() const override { return info_; }
  absl::Status SetDevices(const DeviceSelection& selection) override {
    return disks_.Select(selection);
  }
  absl::StatusOr<Snapshot> Collect() override;
  absl::Status SetTrace(bool on) override {
    trace_.Set(on);
    return absl::OkStatus();
  }
  absl::Status PollTrace(absl::Duration timeout,
                         const std::function<void(const TraceRecord&)>& sink,
                         uint64_t* dropped) override {
    return trace_.Poll(timeout, sink, dropped);
  }
  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override { return OpenSymbols(); }
  uint64_t SymbolGeneration() override { return SymbolTableGeneration(); }

 private:
  void StartTagWaits(const KernelBtf& kernel);
  absl::Status AddRows(Snapshot* snapshot);
  void TakeRow(const fb_row_key& key, Row row, std::vector<Row>* rows);
  void ChargeSkippedIos(Snapshot* snapshot, std::vector<Row>* rows);
  void AddBooks(Snapshot* snapshot);
  absl::Status AddTagWaits(Snapshot* snapshot);

  const BpfTracerOptions options_;
  std::unique_ptr<LoadedPrograms> programs_;
  std::unique_ptr<TagWaitTracer> tag_waits_;  // uses the tables of programs_; null = off
  fleetblame_bpf* const skeleton_;
  TracerInfo info_;
  uint64_t window_start_ns_ = 0;

  // Each looks after some tables of programs_.
  LossCounters counters_;
  RowTables rows_;
  BioTable bios_;
  WatchedDisks disks_;
  SampledIos samples_;
  UnseenPages unseen_pages_;
  MissedEnds missed_ends_;
  Definitions definitions_;
  Reclaimer reclaimer_;
  TraceReader trace_;
};

absl::Status BpfTracer::Start(const KernelBtf& kernel) {
  absl::Status status = reclaimer_.HandOutIds();
  if (status.ok()) status = bios_.Start();
  if (status.ok()) status = rows_.Start();
  if (!status.ok()) return status;
  window_start_ns_ = BootTimeNs();
  skeleton_->data->live.epoch = window_start_ns_ / 1'000'000'000;
  status = programs_->Attach();
  if (!status.ok()) return status;
  info_.limitations = programs_->limitations();
  if (options_.tag_waits) StartTagWaits(kernel);
  definitions_.Start();
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

absl::StatusOr<Snapshot> BpfTracer::Collect() {
  disks_.Rescan();
  Snapshot snapshot;
  snapshot.start_boot_ns = window_start_ns_;
  if (absl::Status status = rows_.BeginWindow(); !status.ok()) return status;
  snapshot.end_boot_ns = BootTimeNs();
  window_start_ns_ = snapshot.end_boot_ns;
  if (absl::Status status = AddRows(&snapshot); !status.ok()) return status;
  disks_.AddLostRows(&snapshot.rows);
  AddBooks(&snapshot);
  if (absl::Status status = AddTagWaits(&snapshot); !status.ok()) return status;
  definitions_.AddTo(&snapshot);
  reclaimer_.Sweep();
  counters_.AddTo(&snapshot.losses);
  return snapshot;
}

absl::Status BpfTracer::AddRows(Snapshot* snapshot) {
  std::vector<Row> rows;
  absl::Status status = rows_.Drain([&](const fb_row_key& key, const fb_row& values) {
    if (!disks_.Contains(UnpackDevice(key.dev))) return;
    definitions_.Want(key);
    TakeRow(key, MakeRow(key, values, info_.reasons.size()), &rows);
  });
  if (!status.ok()) return status;
  ChargeSkippedIos(snapshot, &rows);
  std::vector<Row> pages = unseen_pages_.Take(&snapshot->losses);
  std::move(pages.begin(), pages.end(), std::back_inserter(rows));
  KeepTopFiles(options_.max_files, &rows);
  snapshot->rows = MergeRows(std::move(rows));
  for (const Row& row : snapshot->rows) definitions_.WantFile(row.key.file);
  return absl::OkStatus();
}

// Of which kind the IOs of a row are, if they are samples. None, if the level of pages fell just when
// a page's write was looked at, and its dirtier was known after all.
std::optional<SkippedKind> KindOfSample(const fb_row_key& key) {
  if (IosPerSample(key) == 0) return std::nullopt;
  if (IsUnseen(key)) return SkippedKind::kPageWrite;
  if ((key.op & FB_OP_MASK) == FB_OP_READ) return SkippedKind::kRead;
  if ((key.confidence & FB_CONFIDENCE_MASK) == FB_CONF_ISSUER) return SkippedKind::kDirectWrite;
  return std::nullopt;
}

// Keeps a row, and what it says of those that were not looked at.
void BpfTracer::TakeRow(const fb_row_key& key, Row row, std::vector<Row>* rows) {
  const uint64_t groups = GroupsPerSample(key);
  if (auto kind = KindOfSample(key); kind.has_value()) {
    samples_.Add(*kind,
                 {.row = row, .stands_for = IosPerSample(key), .groups_per_sample = groups});
  }
  if (IsUnseen(key)) {
    unseen_pages_.AddUnseen(std::move(row), groups);
    return;
  }
  if (groups != 0) unseen_pages_.AddSample(row, groups);
  rows->push_back(std::move(row));
}

// IOs that were not looked at are charged in proportion to those that were.
void BpfTracer::ChargeSkippedIos(Snapshot* snapshot, std::vector<Row>* rows) {
  if (skeleton_->rodata->config.sample_ns == 0) return;
  for (const auto& [number, disk] : disks_.all()) {
    for (SkippedKind kind : kSkippedKinds) {
      std::vector<Sample> charged = samples_.Charge(number, kind, disks_.ReadSkipped(disk, kind),
                                                    window_start_ns_, rows);
      for (Sample& part : charged) {
        if (kind == SkippedKind::kPageWrite) {
          unseen_pages_.AddSkipped(std::move(part));
          continue;
        }
        snapshot->losses["ios_estimated"] += part.row.values.ios;
        snapshot->losses["ios_estimated_variance"] += part.row.values.ios * part.stands_for;
        rows->push_back(std::move(part.row));
      }
    }
  }
  samples_.EndWindow(window_start_ns_);
}

// What a disk's books show as missing may be IOs whose end was not told: those become rows before
// the books are closed.
void BpfTracer::AddBooks(Snapshot* snapshot) {
  BooksByDirection books;
  const BytesByDirection ours = BytesOf(snapshot->rows);
  auto add = [&](const fb_row_key& key, const fb_row& values) {
    Row row = MakeRow(key, values, info_.reasons.size());
    if (IsUnseen(key)) row = ToLastDirtier(std::move(row));
    definitions_.Want(key);
    definitions_.WantFile(row.key.file);
    AddRow(std::move(row), &snapshot->rows);
  };
  for (auto& [number, disk] : disks_.all()) {
    absl::StatusOr<DiskStat> stat = disk.reader.Read();
    if (!stat.ok()) continue;
    const bool rested = EnterKernelCounts(number, *stat, ours, &disk, &books);
    if (disk.Deficit() > 0) missed_ends_.Find(number, &disk, add);
    if (rested) missed_ends_.FindSkipped(number, &disk, &snapshot->rows);
  }
  snapshot->books = CloseBooks(snapshot->rows, std::move(books));
}

absl::Status BpfTracer::AddTagWaits(Snapshot* snapshot) {
  if (tag_waits_ == nullptr) return absl::OkStatus();
  std::set<uint32_t> stacks;
  std::set<uint32_t> actors;
  absl::Status status =
      tag_waits_->Collect(&snapshot->tag_waits.emplace(), &snapshot->losses, &stacks, &actors);
  KeepWaiters(
      [this](uint32_t device) { return device == 0 || disks_.Contains(UnpackDevice(device)); },
      &*snapshot->tag_waits);
  definitions_.WantTagWaits(std::move(stacks), std::move(actors),
                            [this](const uint64_t* addresses, size_t count) {
                              return tag_waits_->InnerFrames(addresses, count);
                            });
  return status;
}

TracerInfo InfoOf(const KernelBtf& kernel) {
  TracerInfo info;
  info.kind = "bpf";
  utsname name{};
  if (uname(&name) == 0) info.kernel_release = name.release;
  info.vmlinux_build_id = VmlinuxBuildId();
  info.reasons = WritebackReasons(kernel.EnumValues("wb_reason"));
  return info;
}

absl::Status CheckOptions(const BpfTracerOptions& options) {
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
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tracer>> CreateBpfTracer(const BpfTracerOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = CheckPrivileges(); !status.ok()) return status;
  absl::StatusOr<KernelBtf> kernel = KernelBtf::Load();
  if (!kernel.ok()) return kernel.status();
  auto programs = LoadedPrograms::Load(options, *kernel);
  if (!programs.ok()) return programs.status();
  auto tracer = std::make_unique<BpfTracer>(options, std::move(*programs), InfoOf(*kernel));
  if (absl::Status status = tracer->Start(*kernel); !status.ok()) return status;
  return std::unique_ptr<Tracer>(std::move(tracer));
}

}  // namespace fleetblame::agent
