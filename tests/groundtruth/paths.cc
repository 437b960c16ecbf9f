// SPDX-License-Identifier: Apache-2.0
//
// Ways to the disk that differ from the plain ones of scenario.cc.
#include "tests/groundtruth/scenario.h"

namespace fleetblame::testing {
namespace {

using agent::Operation;
using Kind = FilesystemKind;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr double kAllBar = 0.95;

const std::vector<std::string> kWriteCall = {"sys_write", "ksys_write"};
const std::vector<std::string> kPwriteCall = {"sys_pwrite64"};
const std::vector<std::string> kPageFault = {"handle_mm_fault", "exc_page_fault"};

// Lists of filesystems: each case takes seconds on an emulated machine.
using Kinds = std::vector<Kind>;
const Kinds kMain = {Kind::kExt4, Kind::kXfs, Kind::kBtrfs};
const Kinds kExt4 = {Kind::kExt4};
const Kinds kXfs = {Kind::kXfs};
const Kinds kBtrfs = {Kind::kBtrfs};
const Kinds kExt4Xfs = {Kind::kExt4, Kind::kXfs};
const Kinds kExt4Btrfs = {Kind::kExt4, Kind::kBtrfs};
const Kinds kXfsBtrfs = {Kind::kXfs, Kind::kBtrfs};

// One writer of one file.
Scenario One(const std::string& name, const std::string& mode, uint64_t bytes,
             std::vector<std::string> frames, Writeback writeback = Writeback::kSyncfs) {
  return {.name = name,
          .actors = {{.comm = "fbw-path",
                      .mode = mode,
                      .path = "f",
                      .bytes = bytes,
                      .block = 16 * 1024,
                      .frames = std::move(frames)}},
          .writeback = writeback,
          .all_bar = kAllBar};
}

// Names, links, attributes: nothing of it is file data.
Scenario Storm(const std::string& mode, uint32_t files) {
  return {.name = mode,
          .actors = {{.comm = "fbw-storm", .mode = mode, .path = "d", .files = files}},
          .no_data = true,
          .all_bar = kAllBar};
}

Actor Source(const std::string& path, uint64_t bytes) {
  return {.comm = "fbw-setup", .mode = "write", .path = path, .bytes = bytes, .block = kMiB};
}

// What a write call is, and who pushes it out.
void AddCalls(std::vector<Path>* all) {
  Scenario scenario = One("dsync", "write-dsync", 2 * kMiB, kWriteCall, Writeback::kWriter);
  all->push_back({scenario, kExt4Btrfs, kXfs});
  all->push_back({One("msync", "msync", 8 * kMiB, kPageFault, Writeback::kWriter), kExt4, kXfs});
  all->push_back({One("uring_worker", "uring-worker", 8 * kMiB, {"io_wq", "io_uring", "io_write"}),
                  kExt4, kBtrfs});
  all->push_back({One("uring_sqpoll", "uring-sqpoll", 8 * kMiB,
                      {"io_sq_thread", "io_wq", "io_write"}, Writeback::kWriter),
                  {Kind::kExt4}});
  all->push_back({One("splice", "splice", 8 * kMiB, {"sys_splice"}), kExt4, kBtrfs});
  scenario = One("copy_file_range", "copy-range", 8 * kMiB, {"sys_copy_file_range"});
  scenario.setup = {Source("f.source", 8 * kMiB)};
  all->push_back({scenario, {Kind::kExt4}});
  scenario = One("reflink_overwrite", "reflink", 8 * kMiB, kPwriteCall);
  scenario.setup = {Source("f.source", 8 * kMiB)};
  all->push_back({scenario, kXfsBtrfs});
  all->push_back(
      {One("sync_by_other", "pwrite", 8 * kMiB, kPwriteCall, Writeback::kSync), kExt4, kBtrfs});
}

// Files that change between the write and the disk.
void AddChanges(std::vector<Path>* all) {
  all->push_back({One("fallocate", "fallocate", 8 * kMiB, kPwriteCall), kExt4Xfs, kBtrfs});
  all->push_back({One("punch_hole", "punch", 16 * kMiB, kPwriteCall), kXfs, kExt4});
  all->push_back({One("truncate", "truncate", 16 * kMiB, kPwriteCall), kExt4Btrfs, kXfs});
  all->push_back({One("unlinked", "unlink", 8 * kMiB, kPwriteCall), kExt4, kBtrfs});
  all->push_back({One("sparse", "sparse", 4 * kMiB, kPwriteCall), kBtrfs, kExt4});
  all->push_back({{.name = "one_page_two_writers",
                   .setup = {Source("f", 4 * kMiB)},
                   .actors = {{.comm = "fbw-first",
                               .mode = "sub-page",
                               .path = "f",
                               .bytes = 4 * kMiB,
                               .frames = kPwriteCall},
                              {.comm = "fbw-second",
                               .mode = "sub-page",
                               .path = "f",
                               .bytes = 4 * kMiB,
                               .offset = 512,
                               .frames = kPwriteCall}},
                   .together = true,
                   .all_bar = kAllBar},
                  kExt4Xfs,
                  kBtrfs});
  all->push_back({{.name = "one_folio_two_writers",
                   .setup = {Source("f", 8 * kMiB)},
                   .actors = {{.comm = "fbw-first",
                               .mode = "every-other",
                               .path = "f",
                               .bytes = 4 * kMiB,
                               .frames = kPwriteCall},
                              {.comm = "fbw-second",
                               .mode = "every-other",
                               .path = "f",
                               .bytes = 4 * kMiB,
                               .offset = 4096,
                               .frames = kPwriteCall}},
                   .all_bar = kAllBar},
                  kExt4Xfs,
                  kBtrfs});
  all->push_back({Storm("directories", 1500), kMain});
  all->push_back({Storm("links", 3000), kXfs, kExt4});
  all->push_back({Storm("attributes", 1500), kExt4Xfs, kBtrfs});
}

// Who writes, and under which pressure.
void AddProcesses(std::vector<Path>* all) {
  all->push_back({One("threads", "threads", 8 * kMiB, kPwriteCall), kExt4, kXfs});
  Scenario scenario = One("exec_between", "exec", 6 * kMiB, kWriteCall);
  scenario.actors[0].comm = "fbw-before";
  scenario.actors[0].then = "fbw-after";
  all->push_back({scenario, kBtrfs, kExt4});
  scenario = One("memory_limit", "write", 32 * kMiB, kWriteCall);
  scenario.memory_limit_bytes = 16 * kMiB;
  all->push_back({scenario, kExt4Xfs, kBtrfs});
  scenario = One("throttled", "write", 32 * kMiB, kWriteCall);
  scenario.dirty_percent = 1;
  all->push_back({scenario, {Kind::kExt4}});
  scenario = One("swap_out", "swap", 64 * kMiB, kPageFault, Writeback::kWriter);
  scenario.memory_limit_bytes = 24 * kMiB;
  scenario.surroundings = Surroundings::kSwap;
  all->push_back({scenario, {Kind::kNone, Kind::kExt4}});
}

// Filesystems that do it in another way.
void AddFilesystems(std::vector<Path>* all) {
  Scenario storm = {.name = "small_files",
                    .actors = {{.comm = "fbw-small",
                                .mode = "small-files",
                                .path = "d",
                                .files = 800,
                                .frames = kWriteCall}},
                    .all_bar = kAllBar};
  all->push_back({storm, {Kind::kExt4Quota, Kind::kXfsQuota}});
  // Whoever finds the journal full writes old blocks in place, whosever they are.
  Scenario checkpoint = {
      .name = "checkpoint",
      .actors = {{.comm = "fbw-first", .mode = "directories", .path = "d1", .files = 4000},
                 {.comm = "fbw-second", .mode = "attributes", .path = "d2", .files = 4000}},
      .no_data = true,
      .all_bar = kAllBar,
      .issued_in = "__jbd2_log_wait_for_space"};
  all->push_back({checkpoint, {Kind::kExt4SmallJournal}});
  Scenario stall = {
      .name = "log_stall",
      .actors = {{.comm = "fbw-first", .mode = "attributes", .path = "d1", .files = 1200},
                 {.comm = "fbw-second", .mode = "attributes", .path = "d2", .files = 1200}},
      .no_data = true,
      .all_bar = kAllBar,
      .each_bar = 0.3};
  all->push_back({stall, {Kind::kXfsSmallLog}});
  Scenario syncfs = One("write_syncfs", "write", 8 * kMiB, kWriteCall);
  Scenario fsync = One("pwrite_fsync", "pwrite", 8 * kMiB, kPwriteCall, Writeback::kFsync);
  Scenario direct = One("direct", "pwrite-direct", 8 * kMiB, kPwriteCall, Writeback::kWriter);
  all->push_back(
      {syncfs, {Kind::kBtrfsRaid1, Kind::kF2fs}, {Kind::kExt4FastCommit, Kind::kExt4SmallJournal}});
  all->push_back({fsync, {Kind::kExt4FastCommit, Kind::kF2fs}});
  all->push_back({direct, {}, {Kind::kBtrfsRaid1, Kind::kF2fs}});
  all->push_back(
      {storm, {Kind::kExt4FastCommit, Kind::kExt4SmallJournal, Kind::kBtrfsRaid1, Kind::kF2fs}});
  all->push_back({One("mmap_syncfs", "mmap", 8 * kMiB, kPageFault), {}, {Kind::kF2fs}});
  Scenario scenario = One("write_syncfs", "compressible", 16 * kMiB, kPwriteCall);
  scenario.no_data = true;  // the compressed pages are of no file
  all->push_back({scenario, {Kind::kBtrfsCompressed}});
  scenario = One("write_syncfs", "encrypted", 8 * kMiB, kPwriteCall);
  all->push_back({scenario, {Kind::kExt4Encrypted}});

  syncfs.name = "partition_write_syncfs";
  direct.name = "partition_direct";
  syncfs.surroundings = direct.surroundings = Surroundings::kPartition;
  all->push_back({syncfs, kExt4, kXfsBtrfs});
  all->push_back({direct, {}, kExt4Xfs});
  storm.name = "partition_small_files";
  storm.surroundings = Surroundings::kPartition;
  all->push_back({storm, kXfs, kExt4Btrfs});
  syncfs.name = "overlay_write_syncfs";
  syncfs.surroundings = Surroundings::kOverlay;
  all->push_back({syncfs, kXfs, kExt4});
}

// Why the flusher runs. On btrfs its workers submit, who know nothing of that.
void AddReasons(std::vector<Path>* all) {
  Scenario scenario = One("laptop", "pwrite", 8 * kMiB, kPwriteCall, Writeback::kLaptop);
  scenario.reason = "laptop_timer";
  all->push_back({scenario, {}, kExt4Xfs});
  scenario = One("periodic", "pwrite", 8 * kMiB, kPwriteCall, Writeback::kPeriodic);
  scenario.reason = "periodic";
  all->push_back({scenario, kExt4, kXfs});
  scenario = One("vmscan", "pwrite", 16 * kMiB, kPwriteCall, Writeback::kReclaim);
  scenario.memory_limit_bytes = 64 * kMiB;
  scenario.reason = "vmscan";
  all->push_back({scenario, kExt4Xfs});
}

// Without a filesystem, or about what it does not use.
void AddDevices(std::vector<Path>* all) {
  all->push_back(
      {One("buffered_fsync", "write", 8 * kMiB, kWriteCall, Writeback::kFsync), {Kind::kNone}});
  all->push_back({One("direct", "pwrite-direct", 8 * kMiB, kPwriteCall, Writeback::kWriter),
                  {},
                  {Kind::kNone}});
  all->push_back({One("write_zeroes", "write-zeroes", 8 * kMiB, {"sys_ioctl"}, Writeback::kWriter),
                  {Kind::kNone}});
  Scenario scenario = One("discard", "discard", 8 * kMiB, {"sys_ioctl"}, Writeback::kWriter);
  scenario.direction = Operation::kDiscard;
  all->push_back({scenario, {Kind::kNone}});
  scenario = One("secure_erase", "secure-erase", 8 * kMiB, {"sys_ioctl"}, Writeback::kWriter);
  scenario.surroundings = Surroundings::kErasable;
  scenario.operation = Operation::kSecureErase;
  all->push_back({scenario, {Kind::kNone}});
  scenario = {.name = "flush",
              .actors = {{.comm = "fbw-flush", .mode = "flush", .path = "f", .files = 20}},
              .writeback = Writeback::kWriter,
              .no_data = true,
              .all_bar = 0,
              .flushes = 20};
  all->push_back({scenario, {Kind::kNone}});
  scenario = One("trim", "trim", 0, {"sys_ioctl"}, Writeback::kWriter);
  scenario.actors[0].path = ".";
  scenario.direction = Operation::kDiscard;
  all->push_back({scenario, kXfs, kExt4});
}

}  // namespace

const std::vector<Path>& AllPaths() {
  static const auto* const kPaths = [] {
    auto* all = new std::vector<Path>;
    AddCalls(all);
    AddChanges(all);
    AddProcesses(all);
    AddFilesystems(all);
    AddDevices(all);
    AddReasons(all);
    return all;
  }();
  return *kPaths;
}

}  // namespace fleetblame::testing
