// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/scenario.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/groundtruth/sysctl_guard.h"
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

std::vector<std::string> CommandOf(const std::string& writer, const std::string& mount_point,
                                   const Actor& actor) {
  std::vector<std::string> command = {writer,
                                      "--comm",
                                      actor.comm,
                                      "--mode",
                                      actor.mode,
                                      "--path",
                                      absl::StrCat(mount_point, "/", actor.path),
                                      "--block",
                                      absl::StrCat(actor.block),
                                      "--offset",
                                      absl::StrCat(actor.offset)};
  if (actor.bytes != 0) command.insert(command.end(), {"--bytes", absl::StrCat(actor.bytes)});
  if (actor.files != 0) command.insert(command.end(), {"--files", absl::StrCat(actor.files)});
  return command;
}

// Runs all actors at the same time; returns the bytes each says it moved.
absl::StatusOr<std::vector<uint64_t>> RunActors(const std::string& writer,
                                                const std::string& mount_point,
                                                const std::vector<Actor>& actors) {
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (const Actor& actor : actors) {
    auto child =
        ChildProcess::Start(CommandOf(writer, mount_point, actor), ChildProcess::Output::kCapture);
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
      return absl::InternalError(absl::StrCat(actors[i].comm, " failed (", actors[i].mode, ")"));
    }
    moved.push_back(bytes);
  }
  return moved;
}

absl::Status RunHelper(const std::string& writer, const std::string& comm, const std::string& mode,
                       const std::string& path) {
  return RunCommand({writer, "--comm", comm, "--mode", mode, "--path", path}).status();
}

absl::Status WaitForFlusher(const LoopDisk& disk, uint64_t target_write_bytes) {
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

absl::StatusOr<agent::DeviceNumber> NumberOf(const LoopDisk& disk) {
  struct stat st {};
  if (stat(disk.path().c_str(), &st) != 0) return absl::ErrnoToStatus(errno, disk.path());
  return agent::DeviceNumber{major(st.st_rdev), minor(st.st_rdev)};
}

// Everything from the first writer to the rest after the unmount.
class MeasuredSpan {
 public:
  MeasuredSpan(const Scenario& scenario, const std::string& writer, LoopDisk* disk,
               ScratchFilesystem* filesystem)
      : scenario_(scenario), writer_(writer), disk_(disk), filesystem_(filesystem) {}

  absl::Status Run() {
    auto before = disk_->Counters();
    if (!before.ok()) return before.status();
    auto moved = RunActors(writer_, filesystem_->mount_point(), scenario_.actors);
    if (!moved.ok()) return moved.status();
    moved_ = *std::move(moved);
    absl::Status status = BringToDisk(before->write_bytes);
    if (!status.ok()) return status;
    inodes_ = InodesBelow(filesystem_->mount_point());
    status = filesystem_->UnmountBy([this](const std::string& mount_point) {
      return RunHelper(writer_, "fbw-umount", "unmount", mount_point);
    });
    if (!status.ok()) return status;
    return disk_->WaitForRest(absl::Milliseconds(150));
  }

  const std::vector<uint64_t>& moved() const { return moved_; }
  const std::set<uint64_t>& inodes() const { return inodes_; }

 private:
  absl::Status BringToDisk(uint64_t write_bytes_before) {
    const std::string& mount_point = filesystem_->mount_point();
    switch (scenario_.writeback) {
      case Writeback::kWriter:
        return absl::OkStatus();
      case Writeback::kSyncfs:
        return RunHelper(writer_, "fbw-syncer", "syncfs", mount_point);
      case Writeback::kFsync:
        for (const Actor& actor : scenario_.actors) {
          absl::Status status =
              RunHelper(writer_, "fbw-syncer", "fsync", absl::StrCat(mount_point, "/", actor.path));
          if (!status.ok()) return status;
        }
        return absl::OkStatus();
      case Writeback::kPeriodic:
        break;
    }
    uint64_t data = 0;
    for (uint64_t bytes : moved_) data += bytes;
    auto expire = SysctlGuard::Set("/proc/sys/vm/dirty_expire_centisecs", "30");
    if (!expire.ok()) return expire.status();
    auto wake = SysctlGuard::Set("/proc/sys/vm/dirty_writeback_centisecs", "20");
    if (!wake.ok()) return wake.status();
    return WaitForFlusher(*disk_, write_bytes_before + data);
  }

  const Scenario& scenario_;
  const std::string& writer_;
  LoopDisk* disk_;
  ScratchFilesystem* filesystem_;
  std::vector<uint64_t> moved_;
  std::set<uint64_t> inodes_;
};

Truth TruthOf(FilesystemKind kind, const Scenario& scenario, const MeasuredSpan& span) {
  // With data=journal every block is written to the journal and then again in place.
  const bool twice =
      kind == FilesystemKind::kExt4DataJournal && scenario.direction == Operation::kWrite;
  Truth truth;
  truth.direction = scenario.direction;
  truth.data_inodes = span.inodes();
  truth.metadata_comms = {"fbw-umount", "fbw-syncer"};
  for (size_t i = 0; i < scenario.actors.size(); ++i) {
    const Actor& actor = scenario.actors[i];
    truth.writers.push_back({actor.comm, span.moved()[i] * (twice ? 2 : 1), actor.frames});
  }
  return truth;
}

absl::Status CheckTruth(const Truth& truth, const DiskCounters& moved) {
  uint64_t data = 0;
  for (const WriterTruth& writer : truth.writers) data += writer.data_bytes;
  const uint64_t device =
      truth.direction == Operation::kRead ? moved.read_bytes : moved.write_bytes;
  if (device >= data) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the scenario is wrong: the writers moved ", data,
                                          " bytes and the device only ", device));
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
static absl::StatusOr<DiskCounters> BeginTogether(const LoopDisk& disk, agent::DeviceNumber number,
                                                  Defendant* defendant) {
  const absl::Time deadline = absl::Now() + absl::Seconds(15);
  while (absl::Now() < deadline) {
    auto before = disk.Counters();
    if (!before.ok()) return before.status();
    absl::Status status = defendant->BeginSpan(number);
    if (!status.ok()) return status;
    auto after = disk.Counters();
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

absl::Status Defendant::Watch(const std::string& disk) {
  agent::DeviceSelection selection;
  selection.patterns = {disk};
  return tracer_->SetDevices(selection);
}

absl::Status Defendant::BeginSpan(agent::DeviceNumber disk) {
  auto snapshot = tracer_->Collect();
  if (!snapshot.ok()) return snapshot.status();
  ledger_.Add(*snapshot, disk);  // for its definitions
  ledger_.BeginSpan();
  return absl::OkStatus();
}

absl::Status Defendant::EndSpan(agent::DeviceNumber disk) {
  auto snapshot = tracer_->Collect();
  if (!snapshot.ok()) return snapshot.status();
  ledger_.Add(*snapshot, disk);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> RunScenario(FilesystemKind kind, const Scenario& scenario,
                                    const std::string& writer,
                                    const std::function<absl::StatusOr<Defendant*>()>& summon) {
  auto disk = LoopDisk::Create(DiskBytesFor(kind));
  if (!disk.ok()) return disk.status();
  auto filesystem = ScratchFilesystem::Create(kind, disk->get());
  if (!filesystem.ok()) return filesystem.status();
  auto prepared = RunActors(writer, (*filesystem)->mount_point(), scenario.setup);
  if (!prepared.ok()) return prepared.status();
  absl::Status status = (*filesystem)->Remount();
  if (!status.ok()) return status;
  auto number = NumberOf(**disk);
  if (!number.ok()) return number.status();

  auto defendant = summon();
  if (!defendant.ok()) return defendant.status();
  status = (*defendant)->Watch((*disk)->name());
  if (!status.ok()) return status;
  auto before = BeginTogether(**disk, *number, *defendant);
  if (!before.ok()) return before.status();
  MeasuredSpan span(scenario, writer, disk->get(), filesystem->get());
  status = span.Run();
  if (!status.ok()) return status;
  auto after = (*disk)->Counters();
  if (!after.ok()) return after.status();
  status = (*defendant)->EndSpan(*number);
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
  outcome.dump = Dump(ledger, 25);
  return outcome;
}

}  // namespace fleetblame::testing
