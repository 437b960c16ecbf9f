// SPDX-License-Identifier: Apache-2.0
//
// Sampling of dirtied pages (bpf/page_sample.bpf.h): of very many pages only some groups are looked
// at. The books balance, each file's estimate is as near to the truth as its error allows, nothing
// that is called exact names anybody else, and what was recorded of a group before a time in which
// it was not looked at is not believed after it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/sysctl_guard.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::Operation;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kGroupBytes = 16 * kPageBytes;  // each page written is in a group of its own
std::string writer_program;

// Bytes of file data on one disk by who dirtied them, over all windows.
struct Account {
  std::map<std::string, uint64_t> by_comm;
  std::map<std::pair<Confidence, std::string>, uint64_t> by_confidence;
  uint64_t accounted_bytes = 0;  // recorded and lost, data and metadata
  uint64_t kernel_bytes = 0;
  std::map<std::string, uint64_t> losses;

  uint64_t Bytes(Confidence confidence) const {
    uint64_t bytes = 0;
    for (const auto& [key, value] : by_confidence) bytes += key.first == confidence ? value : 0;
    return bytes;
  }
};

class PageSamplingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
    auto disk = LoopDisk::Create(320 * kMiB);
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    ASSERT_TRUE(disk_->Allocate().ok());
    auto files = ScratchFilesystem::Create(FilesystemKind::kExt4, disk_.get());
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    ASSERT_TRUE(files_->Remount().ok());
  }

  void Watch(uint32_t sample_above, const LoopDisk* other = nullptr) {
    agent::BpfTracerOptions options;
    options.devices.patterns = {disk_->name()};
    if (other != nullptr) options.devices.patterns.push_back(other->name());
    options.sample_above = sample_above;
    auto tracer = agent::CreateBpfTracer(options);
    ASSERT_TRUE(tracer.ok()) << tracer.status();
    tracer_ = *std::move(tracer);
  }

  std::vector<std::string> Writer(const std::string& comm, const std::string& file, uint64_t first,
                                  uint64_t pages) const {
    return WriterAt(files_->mount_point(), comm, file, first, pages);
  }
  static std::vector<std::string> WriterAt(const std::string& folder, const std::string& comm,
                                           const std::string& file, uint64_t first,
                                           uint64_t pages) {
    return {writer_program,
            "--comm",
            comm,
            "--mode",
            "pwrite",
            "--path",
            absl::StrCat(folder, "/", file),
            "--offset",
            absl::StrCat(first * kGroupBytes),
            "--bytes",
            absl::StrCat(pages * kPageBytes),
            "--stride",
            absl::StrCat(kGroupBytes)};
  }

  // Dirties one page in each of `pages` groups.
  void Dirty(const std::string& comm, const std::string& file, uint64_t first, uint64_t pages) {
    auto result = RunCommand(Writer(comm, file, first, pages));
    ASSERT_TRUE(result.ok()) << result.status();
  }

  void Collect(Account* account) {
    auto snapshot = tracer_->Collect();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    for (const agent::ActorDefinition& actor : snapshot->actors) comms_[actor.id] = actor.comm;
    for (const agent::Row& row : snapshot->rows) {
      if (row.key.operation != Operation::kWrite || row.key.file == agent::kNoFile) continue;
      const std::string& comm = comms_[row.key.dirtier_actor];
      account->by_comm[comm] += row.values.bytes;
      account->by_confidence[{row.key.confidence, comm}] += row.values.bytes;
    }
    for (const auto& [name, count] : snapshot->losses) account->losses[name] += count;
    for (const agent::Books& books : snapshot->books) {
      if (books.direction != Operation::kWrite) continue;
      account->accounted_bytes += books.recorded_bytes + books.lost_bytes;
      account->kernel_bytes += books.kernel_bytes;
    }
  }

  // Brings everything to the disk, and takes what the tracer says of it.
  Account WriteOut(Account account = {}) {
    sync();
    EXPECT_TRUE(disk_->WaitForRest(absl::Milliseconds(300)).ok());
    // The kernel hides the end of some IOs; they are found once the disk is idle.
    for (int i = 0; i < 20 && (i < 3 || account.accounted_bytes != account.kernel_bytes); ++i) {
      Collect(&account);
      absl::SleepFor(absl::Milliseconds(100));
    }
    EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
    for (const auto& [key, bytes] : account.by_confidence) {
      std::printf("confidence %d of %-12s %8.2f MiB\n", static_cast<int>(key.first),
                  key.second.c_str(), bytes / double{kMiB});
    }
    return account;
  }

  // Until each page is looked at again. Others on this machine may have to come to rest, too. What
  // is written meanwhile is added to `account`.
  bool WaitUntilCalm(uint32_t sample_above, Account* account) {
    for (int attempt = 0; attempt < 60; ++attempt) {
      // A hook each 20 times as long as it may take, once nobody has been busy for a second.
      absl::SleepFor(absl::Milliseconds(1100));
      for (int i = 0; i < 40; ++i) {
        Dirty("fbw-idle", "idle", 0, 1);
        absl::SleepFor(absl::Seconds(20.0 / sample_above));
      }
      constexpr uint64_t kPages = 64;
      Dirty("fbw-probe", "probe", 0, kPages);
      SyncFile("probe");
      uint64_t& exact = account->by_confidence[{Confidence::kExact, "fbw-probe"}];
      const uint64_t before = exact;
      Collect(account);
      if (exact - before == kPages * kPageBytes) return true;
    }
    return false;
  }

  void SyncFile(const std::string& file) {
    const int fd = open(absl::StrCat(files_->mount_point(), "/", file).c_str(), O_RDWR);
    EXPECT_TRUE(fd >= 0 && fsync(fd) == 0);
    close(fd);
  }

  // How many pages a second one process dirties here.
  double PagesPerSecond() {
    constexpr uint64_t kPages = 4096;
    const absl::Time begin = absl::Now();
    Dirty("fbw-warmup", "warmup", 0, kPages);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    sync();
    EXPECT_TRUE(disk_->WaitForRest(absl::Milliseconds(300)).ok());
    return kPages / seconds;
  }

  std::unique_ptr<LoopDisk> disk_;
  std::unique_ptr<ScratchFilesystem> files_;
  std::unique_ptr<agent::Tracer> tracer_;
  std::map<agent::ActorId, std::string> comms_;
};

// Two who share a file are told apart as well as the number of groups that were looked at allows,
// and two files as well as that of the IOs does.
TEST_F(PageSamplingTest, pages_of_one_file_are_shared_out) {
  ASSERT_NO_FATAL_FAILURE(Watch(std::clamp<uint32_t>(PagesPerSecond() / 16, 100, 1'000'000)));
  const double three = 18000, one = 6000, alone = 6000;
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (const auto& command :
       {Writer("fbw-three", "shared", 0, three), Writer("fbw-one", "shared", three, one),
        Writer("fbw-alone", "own", 0, alone)}) {
    auto child = ChildProcess::Start(command, ChildProcess::Output::kDiscard);
    ASSERT_TRUE(child.ok()) << child.status();
    children.push_back(*std::move(child));
  }
  for (auto& child : children) {
    auto result = child->Wait();
    ASSERT_TRUE(result.ok() && result->exit_status == 0);
  }
  Account account = WriteOut();

  const double data = (three + one + alone) * kPageBytes;
  EXPECT_GT(account.Bytes(Confidence::kEstimated), data / 4);
  EXPECT_GT(account.Bytes(Confidence::kExact), 0);
  const double groups_a_sample = account.losses["ios_estimated_variance"] /
                                 std::max<double>(1, account.losses["ios_estimated"]);
  // Six standard errors, which a right estimate misses once in 500 million runs. The level changes
  // on the way: twice the variance is more than what that does.
  for (const auto& [comm, pages] :
       {std::pair("fbw-three", three), std::pair("fbw-one", one), std::pair("fbw-alone", alone)}) {
    const double others = three + one + alone - pages;
    const double error =
        6 * std::sqrt(2 * groups_a_sample * pages * others / (pages + others)) * kPageBytes;
    EXPECT_NEAR(account.by_comm[comm], pages * kPageBytes, error) << comm;
    std::printf("%-10s one group or IO in %.1f, error allowed %.1f %%, error %.1f %%\n", comm,
                groups_a_sample, 100 * error / (pages * kPageBytes),
                100 * (account.by_comm[comm] / (pages * kPageBytes) - 1));
  }
  for (const auto& [comm, bytes] : account.by_comm) {
    EXPECT_TRUE(comm == "fbw-three" || comm == "fbw-one" || comm == "fbw-alone" || bytes == 0)
        << comm;
  }
}

// What is skipped is counted by disk, and how its end is told from that of other writes depends on the
// filesystem: nothing of it is lost, and nothing goes to the other one.
TEST_F(PageSamplingTest, pages_of_two_filesystems) {
  auto disk = LoopDisk::Create(320 * kMiB);
  ASSERT_TRUE(disk.ok()) << disk.status();
  ASSERT_TRUE((*disk)->Allocate().ok());
  auto files = ScratchFilesystem::Create(FilesystemKind::kXfs, disk->get());
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_NO_FATAL_FAILURE(
      Watch(std::clamp<uint32_t>(PagesPerSecond() / 32, 100, 1'000'000), disk->get()));
  constexpr uint64_t kPages = 16000;
  // Or xfs, which allocates ahead of the end of a file, may also write zeroes between the pages.
  for (const std::string& folder : {files_->mount_point(), (*files)->mount_point()}) {
    const int fd = open(absl::StrCat(folder, "/own").c_str(), O_WRONLY | O_CREAT, 0644);
    ASSERT_TRUE(fd >= 0 && ftruncate(fd, kPages * kGroupBytes) == 0);
    close(fd);
  }
  auto on_ext4 = ChildProcess::Start(Writer("fbw-ext4", "own", 0, kPages),
                                     ChildProcess::Output::kDiscard);
  auto on_xfs = ChildProcess::Start(
      WriterAt((*files)->mount_point(), "fbw-xfs", "own", 0, kPages),
      ChildProcess::Output::kDiscard);
  for (auto* child : {&on_ext4, &on_xfs}) {
    ASSERT_TRUE(child->ok()) << child->status();
    auto result = (**child)->Wait();
    ASSERT_TRUE(result.ok() && result->exit_status == 0);
  }
  Account account = WriteOut();

  EXPECT_GT(account.Bytes(Confidence::kEstimated), kPages * kPageBytes);
  EXPECT_EQ(account.Bytes(Confidence::kLost), 0);
  EXPECT_EQ(account.by_comm["fbw-ext4"], kPages * kPageBytes);
  EXPECT_EQ(account.by_comm["fbw-xfs"], kPages * kPageBytes);
  tracer_.reset();  // before the disk that it watches
}

TEST_F(PageSamplingTest, pages_below_the_threshold) {
  ASSERT_NO_FATAL_FAILURE(Watch(1'000'000));
  Dirty("fbw-calm", "own", 0, 4000);
  Account account = WriteOut();
  EXPECT_EQ(account.Bytes(Confidence::kExact), 4000 * kPageBytes);
  EXPECT_EQ(account.Bytes(Confidence::kEstimated), 0);
}

// Somebody dirties pages that never come to the disk. While there is so much to do that only few
// groups are looked at, somebody else dirties the same ones. Then it is calm again, and they are
// written: the first one must not be blamed.
TEST_F(PageSamplingTest, pages_recorded_before_are_not_believed) {
  // All on one processor, each of which counts for itself.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    CPU_SET(cpu, &one);
    break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  // What is contested is to stay in memory until it is calm.
  std::vector<std::unique_ptr<SysctlGuard>> settings;
  for (const auto& [name, value] :
       {std::pair("dirty_expire_centisecs", "360000"), std::pair("dirty_ratio", "80"),
        std::pair("dirty_background_ratio", "70")}) {
    auto setting = SysctlGuard::Set(absl::StrCat("/proc/sys/vm/", name), value);
    ASSERT_TRUE(setting.ok()) << setting.status();
    settings.push_back(*std::move(setting));
  }
  constexpr uint64_t kPages = 800;  // fewer than it takes until pages are left out
  const double pages_a_second = PagesPerSecond();
  const auto sample_above = std::clamp<uint32_t>(pages_a_second / 8, 100, 1'000'000);
  ASSERT_NO_FATAL_FAILURE(Watch(sample_above));
  const std::string contested = files_->mount_point() + "/contested";

  Dirty("fbw-before", "contested", 1, kPages);
  // Not to 0: ext4 would write it out as soon as it is closed again.
  ASSERT_EQ(truncate(contested.c_str(), 1), 0);
  // A fast machine is through with these pages before much is left out.
  for (const absl::Time begin = absl::Now(); absl::Now() - begin < absl::Milliseconds(400);) {
    Dirty("fbw-busy", "busy", 0, 20000);
  }
  Dirty("fbw-after", "contested", 1, kPages);
  Account account;
  ASSERT_TRUE(WaitUntilCalm(sample_above, &account));
  account = WriteOut(std::move(account));
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);

  EXPECT_EQ(account.by_comm["fbw-before"], 0);
  const uint64_t exact = account.by_confidence[{Confidence::kExact, "fbw-after"}];
  EXPECT_LT(exact, kPages * kPageBytes / 2) << "nothing was left out";
  EXPECT_EQ(account.by_comm["fbw-after"], kPages * kPageBytes);
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
