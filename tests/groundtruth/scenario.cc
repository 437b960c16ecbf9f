// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/scenario.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/groundtruth/sysctl_guard.h"
#include "tests/groundtruth/writeback_log.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Operation;

constexpr uint64_t kMiB = uint64_t{1} << 20;

const std::vector<std::string> kWriteCall = {"sys_write", "ksys_write"};
const std::vector<std::string> kPwriteCall = {"sys_pwrite64"};
const std::vector<std::string> kSendfileCall = {"sys_sendfile64"};
const std::vector<std::string> kReadCall = {"sys_read", "ksys_read"};
const std::vector<std::string> kSubmitCall = {"sys_io_submit"};
const std::vector<std::string> kPageFault = {"handle_mm_fault", "exc_page_fault"};

std::vector<Scenario> MakeScenarios() {
  std::vector<Scenario> all;
  auto add = [&all](Scenario scenario) { all.push_back(std::move(scenario)); };
  add({.name = "write_syncfs",
       .actors = {{.comm = "fbw-write",
                   .mode = "write",
                   .path = "f",
                   .bytes = 24 * kMiB,
                   .block = 64 * 1024,
                   .frames = kWriteCall}}});
  add({.name = "pwrite_fsync",
       .actors = {{.comm = "fbw-pwrite",
                   .mode = "pwrite",
                   .path = "f",
                   .bytes = 16 * kMiB,
                   .frames = kPwriteCall}},
       .writeback = Writeback::kFsync});
  add({.name = "direct",
       .actors = {{.comm = "fbw-direct",
                   .mode = "pwrite-direct",
                   .path = "f",
                   .bytes = 16 * kMiB,
                   .block = 16 * 1024,
                   .frames = kPwriteCall}},
       .writeback = Writeback::kWriter});
  add({.name = "aio",
       .actors = {{.comm = "fbw-aio",
                   .mode = "aio-direct",
                   .path = "f",
                   .bytes = 16 * kMiB,
                   .block = 16 * 1024,
                   .frames = kSubmitCall}},
       .writeback = Writeback::kWriter});
  add({.name = "osync",
       .actors = {{.comm = "fbw-osync",
                   .mode = "write-sync",
                   .path = "f",
                   .bytes = 4 * kMiB,
                   .block = 8192,
                   .frames = kWriteCall}},
       .writeback = Writeback::kWriter});
  add({.name = "mmap_syncfs",
       .actors = {{.comm = "fbw-mmap",
                   .mode = "mmap",
                   .path = "f",
                   .bytes = 16 * kMiB,
                   .frames = kPageFault}}});
  add({.name = "append_fdatasync",
       .actors = {{.comm = "fbw-append",
                   .mode = "append-fdatasync",
                   .path = "log",
                   .bytes = 2 * kMiB,
                   .frames = kWriteCall}},
       .writeback = Writeback::kWriter});
  add({.name = "small_files",
       .actors = {{.comm = "fbw-small",
                   .mode = "small-files",
                   .path = "d",
                   .files = 1500,
                   .frames = kWriteCall}}});
  add({.name = "rename_unlink",
       .actors = {{.comm = "fbw-rename",
                   .mode = "rename-unlink",
                   .path = "d",
                   .files = 3000,
                   .frames = kWriteCall}}});
  add({.name = "forks",
       .actors = {{.comm = "fbw-forks",
                   .mode = "forks",
                   .path = "d",
                   .files = 400,
                   .frames = kWriteCall}}});
  add({.name = "sendfile_fsync",
       .actors = {{.comm = "fbw-sendfile",
                   .mode = "sendfile",
                   .path = "f",
                   .bytes = 12 * kMiB,
                   .frames = kSendfileCall}},
       .writeback = Writeback::kFsync});
  add({.name = "periodic",
       .actors = {{.comm = "fbw-idle",
                   .mode = "pwrite",
                   .path = "f",
                   .bytes = 12 * kMiB,
                   .frames = kPwriteCall}},
       .writeback = Writeback::kPeriodic});
  // Shares: three writers of their own files, and two in the halves of one file, whose blocks can
  // share a large folio at the seam.
  add({.name = "two_writers",
       .actors = {{.comm = "fbw-large",
                   .mode = "write",
                   .path = "a",
                   .bytes = 18 * kMiB,
                   .block = 32 * 1024,
                   .frames = kWriteCall},
                  {.comm = "fbw-medium",
                   .mode = "mmap",
                   .path = "b",
                   .bytes = 8 * kMiB,
                   .frames = kPageFault},
                  {.comm = "fbw-little",
                   .mode = "pwrite",
                   .path = "c",
                   .bytes = 2 * kMiB,
                   .frames = kPwriteCall}}});
  add({.name = "shared_file",
       .setup = {{.comm = "fbw-setup",
                  .mode = "write",
                  .path = "f",
                  .bytes = 16 * kMiB,
                  .block = 1 * kMiB}},
       .actors = {{.comm = "fbw-first",
                   .mode = "pwrite",
                   .path = "f",
                   .bytes = 12 * kMiB + 12288,
                   .frames = kPwriteCall},
                  {.comm = "fbw-second",
                   .mode = "write",
                   .path = "f",
                   .bytes = 3 * kMiB + 4096,
                   .block = 4096,
                   .offset = 12 * kMiB + 12288,
                   .frames = kWriteCall}}});
  add({.name = "read",
       .setup = {{.comm = "fbw-setup",
                  .mode = "write",
                  .path = "f",
                  .bytes = 16 * kMiB,
                  .block = 1 * kMiB}},
       .actors = {{.comm = "fbw-reader",
                   .mode = "read",
                   .path = "f",
                   .bytes = 16 * kMiB,
                   .block = 64 * 1024,
                   .frames = kReadCall}},
       .writeback = Writeback::kWriter,
       .direction = Operation::kRead});
  return all;
}

std::vector<std::string> CommandOf(const std::string& writer, const Scene& scene,
                                   const Actor& actor, const std::string& cgroup,
                                   uint64_t memory_limit_bytes) {
  std::vector<std::string> command = {writer,
                                      "--comm",
                                      actor.comm,
                                      "--mode",
                                      actor.mode,
                                      "--path",
                                      scene.PathOf(actor.path),
                                      "--block",
                                      absl::StrCat(actor.block),
                                      "--offset",
                                      absl::StrCat(actor.offset)};
  if (actor.bytes != 0) command.insert(command.end(), {"--bytes", absl::StrCat(actor.bytes)});
  if (actor.files != 0) command.insert(command.end(), {"--files", absl::StrCat(actor.files)});
  if (!actor.then.empty()) command.insert(command.end(), {"--then", actor.then});
  if (!cgroup.empty()) {
    command.insert(command.end(),
                   {"--cgroup", cgroup, "--limit", absl::StrCat(memory_limit_bytes)});
  }
  return command;
}

// Runs all actors at the same time, in a cgroup or (nullptr) that of the test; returns the bytes
// each says it moved.
absl::StatusOr<std::vector<uint64_t>> RunActors(const std::string& writer, const Scene& scene,
                                                const std::vector<Actor>& actors,
                                                const MemoryCgroup* cgroup,
                                                uint64_t memory_limit_bytes) {
  const std::string group = cgroup == nullptr ? "" : cgroup->path();
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (const Actor& actor : actors) {
    auto child = ChildProcess::Start(CommandOf(writer, scene, actor, group, memory_limit_bytes),
                                     ChildProcess::Output::kCapture);
    if (!child.ok()) return child.status();
    children.push_back(*std::move(child));
  }
  std::vector<uint64_t> moved;
  for (size_t i = 0; i < children.size(); ++i) {
    auto result = children[i]->Wait();
    if (!result.ok()) return result.status();
    uint64_t bytes = 0;
    if (result->exit_status != 0 ||
        !absl::SimpleAtoi(absl::StripAsciiWhitespace(result->output), &bytes)) {
      return absl::InternalError(absl::StrCat(actors[i].comm, " (", actors[i].mode, ") ",
                                              DescribeEnd(result->exit_status)));
    }
    moved.push_back(bytes);
  }
  return moved;
}

absl::Status RunHelper(const std::string& writer, const std::string& comm, const std::string& mode,
                       const std::string& path) {
  return RunCommand({writer, "--comm", comm, "--mode", mode, "--path", path}).status();
}

absl::Status WaitForFlusher(const Scene& disk, uint64_t target_write_bytes) {
  const absl::Time deadline = absl::Now() + absl::Seconds(15);
  while (absl::Now() < deadline) {
    auto counters = disk.Counters();
    if (!counters.ok()) return counters.status();
    if (counters->write_bytes >= target_write_bytes) return disk.WaitForRest(absl::Seconds(1));
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::DeadlineExceededError("the flusher did not write the data back");
}

std::set<uint64_t> InodesBelow(const std::string& mount_point) {
  std::set<uint64_t> inodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(mount_point, error)) {
    struct stat st {};
    if (stat(entry.path().c_str(), &st) == 0 && S_ISREG(st.st_mode)) inodes.insert(st.st_ino);
  }
  return inodes;
}

// The inode of a file; 0 when there is none.
uint64_t FileAt(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) ? st.st_ino : 0;
}

// Everything from the first writer to the rest after the unmount.
class MeasuredSpan {
 public:
  MeasuredSpan(const Scenario& scenario, const std::string& writer, Scene* scene)
      : scenario_(scenario), writer_(writer), scene_(scene) {}

  absl::Status Run() {
    auto before = scene_->Counters();
    if (!before.ok()) return before.status();
    std::unique_ptr<SysctlGuard> dirty;
    if (scenario_.dirty_percent != 0) {
      auto guard =
          SysctlGuard::Set("/proc/sys/vm/dirty_ratio", absl::StrCat(scenario_.dirty_percent));
      if (!guard.ok()) return guard.status();
      dirty = *std::move(guard);
    }
    absl::Status status = WriteAll(before->write_bytes);
    if (!status.ok()) return status;
    inodes_ = InodesBelow(scene_->root());
    for (const Actor& actor : scenario_.actors) {
      files_.push_back(FileAt(scene_->PathOf(actor.path)));
      later_files_.push_back(FileAt(scene_->PathOf(actor.path) + ".after"));
    }
    status = scene_->Close([this](const std::string& mount_point) {
      return RunHelper(writer_, "fbw-umount", "unmount", mount_point);
    });
    if (!status.ok()) return status;
    return scene_->WaitForRest(absl::Milliseconds(150));
  }

  const std::vector<uint64_t>& moved() const { return moved_; }
  const std::set<uint64_t>& inodes() const { return inodes_; }
  const std::map<std::string, uint64_t>& kernel_reasons() const { return kernel_reasons_; }
  // Of each actor's file; 0 = it has none.
  const std::vector<uint64_t>& files() const { return files_; }
  // Of what it is after exec.
  const std::vector<uint64_t>& later_files() const { return later_files_; }

 private:
  // Runs the writers until all is on the disk.
  absl::Status WriteAll(uint64_t write_bytes_before) {
    std::unique_ptr<MemoryCgroup> cgroup;
    if (scenario_.memory_limit_bytes != 0) {
      auto made = MemoryCgroup::Create(scenario_.memory_limit_bytes);
      if (!made.ok()) return made.status();
      cgroup = *std::move(made);
    }
    if (scenario_.writeback == Writeback::kReclaim)
      return WriteUnderReclaim(*cgroup, write_bytes_before);
    absl::Status status = RunWriters(cgroup.get());
    if (!status.ok()) return status;
    return BringToDisk(write_bytes_before);
  }

  absl::Status RunWriters(const MemoryCgroup* cgroup) {
    auto moved =
        RunActors(writer_, *scene_, scenario_.actors, cgroup, scenario_.memory_limit_bytes);
    if (!moved.ok()) return moved.status();
    moved_ = *std::move(moved);
    return absl::OkStatus();
  }

  // Nothing but the want of memory makes the flusher run.
  absl::Status WriteUnderReclaim(const MemoryCgroup& cgroup, uint64_t write_bytes_before) {
    std::vector<std::unique_ptr<SysctlGuard>> guards;
    for (const auto& [name, value] : {std::pair{"dirty_ratio", "90"},
                                      {"dirty_background_ratio", "80"},
                                      {"dirty_expire_centisecs", "360000"}}) {
      auto guard = SysctlGuard::Set(absl::StrCat("/proc/sys/vm/", name), value);
      if (!guard.ok()) return guard.status();
      guards.push_back(*std::move(guard));
    }
    auto log = WritebackLog::Begin();
    if (!log.ok()) return log.status();
    absl::Status status = RunWriters(&cgroup);
    if (!status.ok()) return status;
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    for (;;) {
      status = cgroup.TakeMemory();
      if (!status.ok()) return status;
      auto counters = scene_->Counters();
      if (!counters.ok()) return counters.status();
      if (counters->write_bytes >= write_bytes_before + DataBytes()) break;
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError("reclaim did not make the flusher write the data back");
      }
      absl::SleepFor(absl::Milliseconds(100));
    }
    auto disks = scene_->DiskNumbers();
    if (!disks.ok()) return disks.status();
    for (const auto& [reason, pages] : (*log)->Pages(*disks)) {
      kernel_reasons_[reason] = pages * sysconf(_SC_PAGESIZE);
    }
    return scene_->WaitForRest(absl::Milliseconds(150));
  }

  absl::Status BringToDisk(uint64_t write_bytes_before) {
    switch (scenario_.writeback) {
      case Writeback::kWriter:
        return absl::OkStatus();
      case Writeback::kSyncfs:
        return RunHelper(writer_, "fbw-syncer", "syncfs", scene_->root());
      case Writeback::kSync:
        return RunHelper(writer_, "fbw-syncer", "sync", scene_->root());
      case Writeback::kFsync:
        for (const Actor& actor : scenario_.actors) {
          absl::Status status =
              RunHelper(writer_, "fbw-syncer", "fsync", scene_->PathOf(actor.path));
          if (!status.ok()) return status;
        }
        return absl::OkStatus();
      case Writeback::kLaptop:
        return WriteInLaptopMode(write_bytes_before + DataBytes());
      case Writeback::kPeriodic:
      case Writeback::kReclaim:
        break;
    }
    auto expire = SysctlGuard::Set("/proc/sys/vm/dirty_expire_centisecs", "30");
    if (!expire.ok()) return expire.status();
    auto wake = SysctlGuard::Set("/proc/sys/vm/dirty_writeback_centisecs", "20");
    if (!wake.ok()) return wake.status();
    return WaitForFlusher(*scene_, write_bytes_before + DataBytes());
  }

  uint64_t DataBytes() const {
    uint64_t data = 0;
    for (uint64_t bytes : moved_) data += bytes;
    return data;
  }

  absl::Status WriteInLaptopMode(uint64_t target_write_bytes) {
    const std::string setting = "/proc/sys/vm/laptop_mode";
    if (!std::ifstream(setting)) return absl::UnimplementedError("this kernel has no laptop mode");
    auto mode = SysctlGuard::Set(setting, "1");  // seconds after the last IO
    if (!mode.ok()) return mode.status();
    std::string now;
    std::ifstream(setting) >> now;
    if (now != "1") return absl::UnimplementedError("this kernel ignores vm.laptop_mode");
    absl::Status status = RunHelper(writer_, "fbw-waker", "read-some", scene_->DiskPath());
    if (!status.ok()) return status;
    return WaitForFlusher(*scene_, target_write_bytes);
  }

  const Scenario& scenario_;
  const std::string& writer_;
  Scene* scene_;
  std::vector<uint64_t> moved_;
  std::map<std::string, uint64_t> kernel_reasons_;
  std::set<uint64_t> inodes_;
  std::vector<uint64_t> files_;
  std::vector<uint64_t> later_files_;
};

Truth TruthOf(FilesystemKind kind, const Scenario& scenario, const MeasuredSpan& span) {
  const uint64_t copies =
      scenario.direction == Operation::kWrite && scenario.surroundings != Surroundings::kSwap
          ? DataCopiesOf(kind)
          : 1;
  Truth truth;
  truth.direction = scenario.direction;
  truth.data_inodes = span.inodes();
  truth.metadata_comms = {"fbw-umount", "fbw-syncer"};
  truth.own_frames = {"btrfs_sync_file"};
  if (scenario.surroundings == Surroundings::kOverlay) {
    // Mounting an overlay makes and removes files in its upper layer.
    std::ifstream own("/proc/self/comm");
    std::string comm;
    if (std::getline(own, comm)) truth.metadata_comms.insert(comm);
  }
  for (size_t i = 0; i < scenario.actors.size(); ++i) {
    const Actor& actor = scenario.actors[i];
    const uint64_t bytes = span.moved()[i] * copies;
    truth.writers.push_back({actor.comm, bytes, actor.frames, span.files()[i]});
    if (!actor.then.empty()) {
      truth.writers.push_back({actor.then, bytes, actor.frames, span.later_files()[i]});
    }
  }
  return truth;
}

absl::Status CheckTruth(const Truth& truth, const DiskCounters& moved) {
  uint64_t data = 0;
  for (const WriterTruth& writer : truth.writers) data += writer.data_bytes;
  const uint64_t device = truth.direction == Operation::kRead      ? moved.read_bytes
                          : truth.direction == Operation::kDiscard ? moved.discard_bytes
                                                                   : moved.write_bytes;
  if (device >= data) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the scenario is wrong: the writers moved ", data,
                                          " bytes and the device only ", device));
}

bool IsWriter(const Truth& truth, const std::string& comm) {
  return std::any_of(truth.writers.begin(), truth.writers.end(),
                     [&comm](const WriterTruth& writer) { return writer.comm == comm; });
}

bool HasFrame(const std::vector<std::string>& frames, const std::string& function) {
  return std::find(frames.begin(), frames.end(), function) != frames.end();
}

DiskCounters Difference(const DiskCounters& after, const DiskCounters& before) {
  DiskCounters moved;
  moved.read_ios = after.read_ios - before.read_ios;
  moved.read_bytes = after.read_bytes - before.read_bytes;
  moved.write_ios = after.write_ios - before.write_ios;
  moved.write_bytes = after.write_bytes - before.write_bytes;
  moved.discard_bytes = after.discard_bytes - before.discard_bytes;
  return moved;
}

}  // namespace

const std::vector<Scenario>& AllScenarios() {
  static const auto* scenarios = new std::vector<Scenario>(MakeScenarios());
  return *scenarios;
}

// Begins the span at a moment in which the disk did nothing, and returns its counters then: a fresh
// mount may still be read by the filesystem's own threads (ext4lazyinit).
static absl::StatusOr<DiskCounters> BeginTogether(const Scene& scene,
                                                  const std::vector<agent::DeviceNumber>& disks,
                                                  Defendant* defendant) {
  const absl::Time deadline = absl::Now() + absl::Seconds(15);
  while (absl::Now() < deadline) {
    auto before = scene.Counters();
    if (!before.ok()) return before.status();
    absl::Status status = defendant->BeginSpan(disks);
    if (!status.ok()) return status;
    auto after = scene.Counters();
    if (!after.ok()) return after.status();
    if (*before == *after && before->in_flight == 0) return before;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError("the disk never rested before the span");
}

absl::StatusOr<std::unique_ptr<Defendant>> Defendant::Create(
    std::unique_ptr<agent::Tracer> tracer) {
  auto table = tracer->OpenKallsyms();
  if (!table.ok()) return table.status();
  KernelSymbols symbols = KernelSymbols::Read(**table);
  return std::unique_ptr<Defendant>(new Defendant(std::move(tracer), std::move(symbols)));
}

absl::Status Defendant::Watch(const std::vector<std::string>& disks) {
  agent::DeviceSelection selection;
  selection.patterns = disks;
  return tracer_->SetDevices(selection);
}

absl::Status Defendant::BeginSpan(const std::vector<agent::DeviceNumber>& disks) {
  auto snapshot = tracer_->Collect();
  if (!snapshot.ok()) return snapshot.status();
  ledger_.Add(*snapshot, disks);  // for its definitions
  ledger_.BeginSpan();
  return absl::OkStatus();
}

absl::Status Defendant::EndSpan(const std::vector<agent::DeviceNumber>& disks) {
  auto snapshot = tracer_->Collect();
  if (!snapshot.ok()) return snapshot.status();
  ledger_.Add(*snapshot, disks);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> RunScenario(FilesystemKind kind, const Scenario& scenario,
                                    const std::string& writer,
                                    const std::function<absl::StatusOr<Defendant*>()>& summon) {
  auto scene = Scene::Create(kind, scenario.surroundings);
  if (!scene.ok()) return scene.status();
  auto prepared = RunActors(writer, **scene, scenario.setup, nullptr, 0);
  if (!prepared.ok()) return prepared.status();
  absl::Status status = (*scene)->Settle();
  if (!status.ok()) return status;
  if (scenario.memory_limit_bytes != 0) {
    status = (*scene)->AllocateDisks();
    if (!status.ok()) return status;
  }
  auto numbers = (*scene)->DiskNumbers();
  if (!numbers.ok()) return numbers.status();

  auto defendant = summon();
  if (!defendant.ok()) return defendant.status();
  status = (*defendant)->Watch((*scene)->DiskNames());
  if (!status.ok()) return status;
  auto before = BeginTogether(**scene, *numbers, *defendant);
  if (!before.ok()) return before.status();
  MeasuredSpan span(scenario, writer, scene->get());
  status = span.Run();
  if (!status.ok()) return status;
  auto after = (*scene)->Counters();
  if (!after.ok()) return after.status();
  status = (*defendant)->EndSpan(*numbers);
  if (!status.ok()) return status;

  const Ledger& ledger = (*defendant)->ledger();
  const Truth truth = TruthOf(kind, scenario, span);
  Outcome outcome;
  outcome.kernel = Difference(*after, *before);
  status = CheckTruth(truth, outcome.kernel);
  if (!status.ok()) return status;
  outcome.verdict = Judge(ledger, truth);
  outcome.books = ledger.books();
  for (const ResolvedRow& row : ledger.rows()) {
    const Operation direction = DirectionOf(row.operation);
    outcome.row_bytes[direction] += row.bytes;
    if (row.confidence != agent::Confidence::kLost) outcome.charged_bytes[direction] += row.bytes;
  }
  for (const ResolvedRow& row : ledger.rows()) {
    if (row.operation == Operation::kFlush) outcome.flushes[row.dirtier_comm] += row.ios;
    if (DirectionOf(row.operation) != scenario.direction) continue;
    if (row.reason == scenario.reason && IsWriter(truth, row.dirtier_comm)) {
      outcome.reason_bytes += row.bytes;
    }
    if (row.operation == scenario.operation && IsWriter(truth, row.dirtier_comm)) {
      outcome.operation_bytes += row.bytes;
    }
    if (!scenario.issued_in.empty() && HasFrame(row.issuer_frames, scenario.issued_in)) {
      outcome.issued_in_bytes[row.issuer_comm] += row.bytes;
    }
  }
  outcome.kernel_reasons = span.kernel_reasons();
  outcome.dump = Dump(ledger, 25);
  return outcome;
}

}  // namespace fleetblame::testing
