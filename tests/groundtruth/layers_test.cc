// SPDX-License-Identifier: Apache-2.0
//
// Stacked devices on the real kernel: two writers, one through the page cache and one past it, on a
// filesystem on each kind of stack. The bars: the books of every device of the stack balance
// exactly with the kernel's counters; on the top-most device at least 99 % of each writer's data is
// charged to it; on the disks at least 95 % of all bytes are the writers', and say through which
// device they came; the rows of no layer but the top-most one count as "top"; and nothing called
// exact is charged to anyone who wrote nothing.
//
//   ./run-tests vm --scenario '*_dm_*'   (in virtual machines: few others have dm and md)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/groundtruth/figures.h"
#include "tests/groundtruth/judge.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/stacked_disk.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::DeviceNumber;
using agent::Operation;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr double kDataBar = 0.99;
constexpr double kLeafBar = 0.95;

std::string writer_program;

DeviceNumber NumberOf(const std::string& name) {
  struct stat st {};
  if (stat(("/dev/" + name).c_str(), &st) != 0) return {};
  return {major(st.st_rdev), minor(st.st_rdev)};
}

// Old kernels count data that comes with a flush twice in the statistics of a dm device, and the
// rest of a split bio again in those of an md device.
bool KernelCountsTwice() {
  utsname name{};
  unsigned major = 0, minor = 0;
  return uname(&name) == 0 && std::sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
         (major < 5 || (major == 5 && minor < 18));
}

// What one device says of one span.
struct DeviceView {
  std::string name;
  DeviceNumber number;
  uint64_t kernel_write_bytes = 0;  // read by the test itself
  uint64_t kernel_read_bytes = 0;
  uint64_t books_write_bytes = 0;  // recorded and lost
  uint64_t books_read_bytes = 0;
  uint64_t lost_bytes = 0;
  uint64_t ios = 0;
  uint64_t errors = 0;
  uint64_t written = 0;                     // all rows
  uint64_t elsewhere = 0;                   // rows of another top-most device
  uint64_t as_top = 0;                      // rows without a device above
  std::map<std::string, uint64_t> by_comm;  // written bytes
  std::map<std::string, uint64_t> data;     // of these, in files
  std::map<Confidence, uint64_t> by_confidence;
  std::map<std::string, uint64_t> wrong;         // exact, but of nobody who wrote
  std::map<std::string, uint64_t> read_by_comm;  // read bytes
  uint64_t read_errors = 0;
};

class LayersTest : public ::testing::TestWithParam<std::tuple<StackKind, FilesystemKind>> {
 public:
  static void Dismiss() { tracer_.reset(); }

 protected:
  static absl::Status RunWriter(const std::string& comm, const std::string& mode,
                                const std::string& path, uint64_t bytes, uint64_t block) {
    std::vector<std::string> command = {writer_program, "--comm", comm, "--mode",
                                        mode,           "--path", path};
    if (bytes != 0) {
      command.insert(command.end(),
                     {"--bytes", absl::StrCat(bytes), "--block", absl::StrCat(block)});
    }
    return RunCommand(command).status();
  }

  void Take(const agent::Snapshot& snapshot, bool count) {
    for (const auto& actor : snapshot.actors) actors_[actor.id] = actor.comm;
    if (!count) return;
    for (DeviceView& view : views_) {
      for (const agent::Row& row : snapshot.rows) {
        if (row.key.device == view.number) TakeRow(row, &view);
      }
      for (const agent::Books& books : snapshot.books) {
        if (books.device != view.number) continue;
        view.lost_bytes += books.lost_bytes;
        const uint64_t bytes = books.recorded_bytes + books.lost_bytes;
        if (books.direction == Operation::kWrite) view.books_write_bytes += bytes;
        if (books.direction == Operation::kRead) view.books_read_bytes += bytes;
      }
    }
  }

  void TakeRow(const agent::Row& row, DeviceView* view) {
    if (DirectionOf(row.key.operation) == Operation::kRead) {
      view->read_errors += row.values.errors;
      view->read_by_comm[actors_[row.key.dirtier_actor]] += row.values.bytes;
    }
    if (DirectionOf(row.key.operation) != Operation::kWrite) return;
    view->errors += row.values.errors;
    view->ios += row.values.ios;
    const std::string& comm = actors_[row.key.dirtier_actor];
    const uint64_t bytes = row.values.bytes;
    view->written += bytes;
    view->by_confidence[row.key.confidence] += bytes;
    if (row.key.top == DeviceNumber{}) {
      view->as_top += bytes;
    } else if (row.key.top != NumberOf(stack_->top()) && row.key.top != view->number) {
      view->elsewhere += bytes;
    }
    view->by_comm[comm] += bytes;
    if (row.key.file != agent::kNoFile || comm == "fbw-direct") view->data[comm] += bytes;
    if (row.key.confidence == Confidence::kExact && comm.rfind("fbw-", 0) != 0) {
      view->wrong[comm] += bytes;
    }
  }

  std::vector<DiskCounters> Counters() {
    std::vector<DiskCounters> all;
    for (const DeviceView& view : views_) {
      auto counters = stack_->Counters(view.name);
      EXPECT_TRUE(counters.ok()) << counters.status();
      all.push_back(counters.ok() ? *counters : DiskCounters());
    }
    return all;
  }

  // Collects so that the end of a window and the counters, which it returns, belong together: md
  // writes its superblocks a while after all else.
  std::vector<DiskCounters> CollectAtRest(bool count) {
    for (int attempt = 0; attempt < 50; ++attempt) {
      const std::vector<DiskCounters> before = Counters();
      auto snapshot = tracer_->Collect();
      EXPECT_TRUE(snapshot.ok()) << snapshot.status();
      if (!snapshot.ok()) return {};
      Take(*snapshot, count);
      for (const auto& [counter, value] : snapshot->losses) losses_[counter] += value;
      if (Counters() == before) return before;
      absl::SleepFor(absl::Milliseconds(100));
    }
    ADD_FAILURE() << "the devices never rested";
    return {};
  }

  // Builds the stack and lets the tracer find it.
  void Watch(StackKind kind) {
    if (const std::string why = StackedDisk::Unavailable(kind); !why.empty()) GTEST_SKIP() << why;
    if (tracer_ == nullptr) {
      auto tracer = agent::CreateBpfTracer(agent::BpfTracerOptions());
      ASSERT_TRUE(tracer.ok()) << tracer.status();
      tracer_ = *std::move(tracer);
    }
    auto stack = StackedDisk::Create(kind, 400 * kMiB);
    ASSERT_TRUE(stack.ok()) << stack.status();
    stack_ = *std::move(stack);
    for (const std::string& name : stack_->devices()) {
      views_.push_back({.name = name, .number = NumberOf(name)});
    }
    ASSERT_TRUE(tracer_->Collect().ok());  // finds the new devices
  }

  // Lets `write` write, and takes what tracer and kernel have of it.
  void Judge(const std::function<absl::Status()>& write) {
    const std::vector<DiskCounters> before = CollectAtRest(false);
    absl::Status status = write();
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<DiskCounters> after = CollectAtRest(true);
    ASSERT_EQ(before.size(), views_.size());
    ASSERT_EQ(after.size(), views_.size());
    for (size_t i = 0; i < views_.size(); ++i) {
      views_[i].kernel_write_bytes = after[i].write_bytes - before[i].write_bytes;
      views_[i].kernel_read_bytes = after[i].read_bytes - before[i].read_bytes;
    }
  }

  // Makes and mounts the filesystem and lets it come to rest.
  absl::Status Mount(FilesystemKind kind) {
    const bool xfs = kind == FilesystemKind::kXfs;
    auto made = xfs ? RunCommand({"mkfs.xfs", "-q", "-f", stack_->path()})
                    : RunCommand({"mkfs.ext4", "-q", "-F", "-E",
                                  "lazy_itable_init=0,lazy_journal_init=0", stack_->path()});
    if (!made.ok()) return made.status();
    mkdir(mount_point_.c_str(), 0755);
    if (mount(stack_->path().c_str(), mount_point_.c_str(), xfs ? "xfs" : "ext4", MS_NOATIME,
              nullptr) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("mount ", stack_->path()));
    }
    mounted_ = true;
    return stack_->WaitForRest(absl::Milliseconds(300));
  }

  absl::Status WriteAndUnmount() {
    absl::Status status =
        RunWriter("fbw-buffered", "write", mount_point_ + "/a", kBuffered, 64 * 1024);
    if (status.ok()) {
      status = RunWriter("fbw-direct", "pwrite-direct", mount_point_ + "/b", kDirect, 64 * 1024);
    }
    if (status.ok()) status = RunWriter("fbw-syncer", "syncfs", mount_point_, 0, 0);
    if (status.ok()) status = RunWriter("fbw-umount", "unmount", mount_point_, 0, 0);
    if (!status.ok()) return status;
    mounted_ = false;
    if (const std::string outer = stack_->outer_mount_point(); !outer.empty()) {
      status = RunWriter("fbw-syncer", "syncfs", outer, 0, 0);
      if (!status.ok()) return status;
    }
    return stack_->WaitForRest(absl::Milliseconds(300));
  }

  void TearDown() override {
    if (mounted_) umount2(mount_point_.c_str(), MNT_DETACH);
  }

  void Report(const std::string& name) const {
    for (const DeviceView& view : views_) {
      std::string confidences, comms;
      for (const auto& [confidence, bytes] : view.by_confidence) {
        absl::StrAppend(&confidences, " ", ConfidenceName(confidence), " ",
                        bytes * 1000 / std::max<uint64_t>(view.written, 1) / 10.0, "%");
      }
      for (const auto& [comm, bytes] : view.by_comm) {
        absl::StrAppend(&comms, " ", comm.empty() ? "-" : comm, "=", bytes);
      }
      std::printf("  %s %s: kernel %llu books %llu top %llu (%s) %s\n", name.c_str(),
                  view.name.c_str(), static_cast<unsigned long long>(view.kernel_write_bytes),
                  static_cast<unsigned long long>(view.books_write_bytes),
                  static_cast<unsigned long long>(view.as_top), confidences.c_str(), comms.c_str());
    }
    std::fflush(stdout);
  }

  static constexpr uint64_t kBuffered = 16 * kMiB;
  static constexpr uint64_t kDirect = 6 * kMiB;
  const std::string mount_point_ = "/mnt/layers";
  std::unique_ptr<StackedDisk> stack_;
  // One for all cases, as an agent sees devices come and go.
  static std::unique_ptr<agent::Tracer> tracer_;
  static std::map<agent::ActorId, std::string> actors_;
  std::vector<DeviceView> views_;
  std::map<std::string, uint64_t> losses_;
  bool mounted_ = false;
};

std::unique_ptr<agent::Tracer> LayersTest::tracer_;
std::map<agent::ActorId, std::string> LayersTest::actors_;

// The tracer goes when all suites are over.
class LastTracer : public ::testing::Environment {
 public:
  void TearDown() override { LayersTest::Dismiss(); }
};

TEST_P(LayersTest, EachLayerIsCountedOnce) {
  const auto [stack_kind, filesystem] = GetParam();
  if (!HaveProgram(MkfsProgram(filesystem))) GTEST_SKIP() << MkfsProgram(filesystem);
  Watch(stack_kind);
  if (IsSkipped() || HasFatalFailure()) return;
  absl::Status status = Mount(filesystem);
  ASSERT_TRUE(status.ok()) << status;

  Judge([this] { return WriteAndUnmount(); });
  if (HasFatalFailure()) return;

  const DeviceView& top = views_[0];
  const std::map<std::string, uint64_t> truth = {{"fbw-buffered", kBuffered},
                                                 {"fbw-direct", kDirect}};
  uint64_t top_writers = 0;
  for (const auto& [comm, bytes] : truth) {
    auto found = top.data.find(comm);
    const uint64_t charged = found == top.data.end() ? 0 : found->second;
    top_writers += std::min(charged, bytes);
    EXPECT_GE(charged, bytes * kDataBar) << comm << " on " << top.name;
  }
  EXPECT_EQ(top.as_top, top.written);
  // Data is that of the top-most device, all bytes are those of the disks.
  Figures figures;
  uint64_t below_as_top = 0;
  const std::vector<std::string> leaves = stack_->leaves();
  for (const DeviceView& view : views_) {
    if (KernelCountsTwice() && !absl::c_linear_search(leaves, view.name)) {
      EXPECT_EQ(view.books_write_bytes, view.written) << view.name;
      EXPECT_LE(view.books_write_bytes, view.kernel_write_bytes) << view.name;
    } else {
      EXPECT_EQ(view.books_write_bytes, view.kernel_write_bytes) << view.name;
      EXPECT_EQ(view.books_read_bytes, view.kernel_read_bytes) << view.name;
    }
    EXPECT_TRUE(view.wrong.empty()) << view.name << ": " << view.wrong.begin()->first << " got "
                                    << view.wrong.begin()->second << " exact bytes";
    // Which of the devices on a snapshot's base it was for, nobody tells.
    if (!IsSnapshotOrigin(stack_kind)) {
      EXPECT_EQ(view.elsewhere, 0) << view.name;
    }
    figures.lost += view.lost_bytes;
    for (const auto& [comm, bytes] : view.wrong) figures.wrong += bytes;
    const bool leaf = absl::c_linear_search(leaves, view.name);
    if (&view == &top && !leaf) continue;
    if (&view != &top) below_as_top += view.as_top;
    if (!leaf) continue;
    figures.all += view.written;
    for (const auto& [confidence, bytes] : view.by_confidence) {
      figures.by_confidence[confidence] += bytes;
    }
    for (const auto& [comm, bytes] : view.by_comm) {
      // Whom a server writes for, the kernel cannot know: there the server is the truth.
      if (IsServed(stack_kind) ? comm == kServerComm : truth.contains(comm)) {
        figures.all_right += bytes;
      } else if (IsServed(stack_kind)) {
        EXPECT_FALSE(truth.contains(comm) && bytes != 0) << comm << " on " << view.name;
      }
    }
  }
  EXPECT_GE(figures.all, (kBuffered + kDirect) * stack_->copies());
  // Of what dm-snapshot copies, and of what waits for that, nobody tells whose it is.
  if (!IsSnapshotOrigin(stack_kind)) {
    EXPECT_GE(figures.all_right, figures.all * kLeafBar);
  }
  // Superblocks of the stack itself come from nothing above.
  if (!IsLoopOnFile(stack_kind) && !IsServed(stack_kind)) {
    EXPECT_LE(below_as_top, figures.all / 100);
  }
  figures.data = kBuffered + kDirect;
  figures.data_right = top_writers;
  TellFigures(absl::StrCat(FilesystemName(filesystem), "/", StackName(stack_kind)), figures);
  const std::string name = absl::StrCat(FilesystemName(filesystem), "_", StackName(stack_kind));
  Report(name);
  if (HasFailure()) {
    for (const auto& [counter, value] : losses_) {
      if (value != 0) std::printf("  %s %llu\n", counter.c_str(), (unsigned long long)value);
    }
  }
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<StackKind, FilesystemKind>>& info) {
  return absl::StrCat(FilesystemName(std::get<1>(info.param)), "_",
                      StackName(std::get<0>(info.param)));
}

// IOs that fail below nothing: they are counted where they were sent to, and as errors.
class ErrorsTest : public LayersTest {};

TEST_P(ErrorsTest, FailedIosAreCountedWhereTheyFail) {
  Watch(std::get<0>(GetParam()));
  if (IsSkipped() || HasFatalFailure()) return;
  constexpr uint64_t kBlock = 64 * 1024;
  constexpr uint64_t kGood = 16 * kBlock, kBad = 8 * kBlock;
  Judge([this] {
    absl::Status status = RunWriter("fbw-direct", "pwrite-direct", stack_->path(), kGood, kBlock);
    if (!status.ok()) return status;
    for (uint64_t i = 0; i < kBad / kBlock; ++i) {
      // Each ends at the first error.
      auto failed =
          RunCommand({writer_program, "--comm", "fbw-failing", "--mode", "pwrite-direct", "--path",
                      stack_->path(), "--bytes", absl::StrCat(kBlock), "--block",
                      absl::StrCat(kBlock), "--offset", absl::StrCat(300 * kMiB + i * kBlock)});
      if (failed.ok()) return absl::InternalError("a write to the part that fails did not");
    }
    return stack_->WaitForRest(absl::Milliseconds(300));
  });
  if (HasFatalFailure()) return;
  const DeviceView& top = views_[0];
  const DeviceView& disk = views_[1];
  // Since 5.18 device mapper does not count what it fails itself.
  EXPECT_TRUE(top.kernel_write_bytes == kGood || top.kernel_write_bytes == kGood + kBad)
      << top.kernel_write_bytes;
  EXPECT_EQ(top.books_write_bytes, kGood + kBad);
  EXPECT_EQ(disk.books_write_bytes, disk.kernel_write_bytes);
  EXPECT_EQ(top.lost_bytes + disk.lost_bytes, 0);
  EXPECT_EQ(top.written, kGood + kBad);
  EXPECT_EQ(disk.written, kGood);
  EXPECT_EQ(top.errors, kBad / kBlock);
  EXPECT_EQ(disk.errors, 0);
  std::map<std::string, uint64_t> charged = top.by_comm;
  std::erase_if(charged, [](const auto& entry) { return entry.second == 0; });
  EXPECT_EQ(charged,
            (std::map<std::string, uint64_t>{{"fbw-direct", kGood}, {"fbw-failing", kBad}}));
  Figures figures{.data = kGood + kBad, .all = top.written, .by_confidence = top.by_confidence};
  for (const auto& [comm, bytes] : top.by_comm) {
    if (comm.rfind("fbw-", 0) == 0) figures.all_right += bytes;
  }
  figures.data_right = figures.all_right;
  TellFigures("disk/dm_error", figures);
}

INSTANTIATE_TEST_SUITE_P(All, ErrorsTest,
                         ::testing::Values(std::make_tuple(StackKind::kHalfError,
                                                           FilesystemKind::kNone)),
                         CaseName);

// IOs that fail now and then, at times that nobody knows beforehand: as many errors are counted as
// programs saw.
class FlakyTest : public LayersTest {};

TEST_P(FlakyTest, AsManyErrorsAsWereSeen) {
  Watch(std::get<0>(GetParam()));
  if (IsSkipped() || HasFatalFailure()) return;
  constexpr uint64_t kBlock = 64 * 1024, kRead = 4096;
  constexpr uint64_t kLeast = 3, kMost = 300;
  uint64_t written = 0, not_written = 0, was_read = 0, not_read = 0;
  Judge([&] {
    for (uint64_t i = 0; i < kMost; ++i) {
      if (std::min({written, not_written, was_read, not_read}) >= kLeast) break;
      auto run = [&](const char* comm, const char* mode, uint64_t bytes) {
        return RunCommand({writer_program, "--comm", comm, "--mode", mode, "--path", stack_->path(),
                           "--bytes", absl::StrCat(bytes), "--block", absl::StrCat(bytes),
                           "--offset", absl::StrCat(i * kBlock)})
            .ok();
      };
      ++(run("fbw-direct", "pwrite-direct", kBlock) ? written : not_written);
      ++(run("fbw-reader", "read-some", kRead) ? was_read : not_read);
    }
    return stack_->WaitForRest(absl::Milliseconds(300));
  });
  if (HasFatalFailure()) return;
  EXPECT_GE(std::min({written, not_written, was_read, not_read}), kLeast);
  const DeviceView& top = views_[0];
  const DeviceView& disk = views_[1];
  const uint64_t all_written = (written + not_written) * kBlock;
  const uint64_t all_read = (was_read + not_read) * kRead;
  // Since 5.18 device mapper does not count what it fails itself.
  EXPECT_TRUE(top.kernel_write_bytes == written * kBlock || top.kernel_write_bytes == all_written)
      << top.kernel_write_bytes;
  EXPECT_TRUE(top.kernel_read_bytes == was_read * kRead || top.kernel_read_bytes == all_read)
      << top.kernel_read_bytes;
  EXPECT_EQ(top.books_write_bytes, all_written);
  EXPECT_EQ(top.books_read_bytes, all_read);
  EXPECT_EQ(disk.books_write_bytes, disk.kernel_write_bytes);
  EXPECT_EQ(disk.books_read_bytes, disk.kernel_read_bytes);
  EXPECT_EQ(disk.books_write_bytes, written * kBlock);
  EXPECT_EQ(disk.books_read_bytes, was_read * kRead);
  EXPECT_EQ(top.lost_bytes + disk.lost_bytes, 0);
  EXPECT_EQ(top.errors, not_written);
  EXPECT_EQ(top.read_errors, not_read);
  EXPECT_EQ(disk.errors + disk.read_errors, 0);
  EXPECT_EQ(top.by_comm, (std::map<std::string, uint64_t>{{"fbw-direct", all_written}}));
  EXPECT_EQ(top.read_by_comm, (std::map<std::string, uint64_t>{{"fbw-reader", all_read}}));
  Figures figures{.data = all_written, .all = top.written, .by_confidence = top.by_confidence};
  figures.all_right = figures.data_right = top.by_comm.contains("fbw-direct") ? all_written : 0;
  TellFigures("disk/dm_flakey", figures);
  std::printf("  %llu writes and %llu reads failed\n", static_cast<unsigned long long>(not_written),
              static_cast<unsigned long long>(not_read));
}

// A disk with several ways to it, one of which fails or goes away: what was under way there takes
// another, and is counted once.
class FailoverTest : public LayersTest {
 protected:
  static constexpr uint64_t kBlock = 64 * 1024;
  static constexpr uint64_t kOneByOne = 1 * kMiB, kManyAtOnce = 4 * kMiB;

  static bool Tell(const std::string& path) {
    std::ofstream file(path);
    file << "1" << std::flush;
    return static_cast<bool>(file);
  }

  // Hides a controller from its driver, which then gives up what is under way there, and finds it
  // again.
  static void Fail(const std::string& controller) {
    const std::string config = absl::StrCat("/sys/class/nvme/", controller, "/device/config");
    constexpr int kCommand = 4;
    constexpr uint16_t kAnswersInMemory = 2;
    uint16_t command = 0;
    const int fd = open(config.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return;  // being found again
    if (pread(fd, &command, sizeof(command), kCommand) == sizeof(command)) {
      command &= static_cast<uint16_t>(~kAnswersInMemory);
      EXPECT_EQ(pwrite(fd, &command, sizeof(command), kCommand), sizeof(command));
    }
    close(fd);
    Tell(absl::StrCat("/sys/class/nvme/", controller, "/reset_controller"));
  }

  // Writes by two writers, and lets `disturb` do what it does again and again meanwhile.
  absl::Status WriteWhile(const std::function<void()>& disturb) {
    const struct {
      const char* comm;
      const char* mode;
      uint64_t bytes;
    } kWriters[] = {{"fbw-direct", "pwrite-direct", kOneByOne},
                    {"fbw-aio", "aio-direct", kManyAtOnce}};
    for (const auto& writer : kWriters) {
      auto child = ChildProcess::Start(
          {writer_program, "--comm", writer.comm, "--mode", writer.mode, "--path", stack_->path(),
           "--bytes", absl::StrCat(writer.bytes), "--block", absl::StrCat(kBlock)},
          ChildProcess::Output::kCapture);
      if (!child.ok()) return child.status();
      while (!(*child)->HasEnded()) {
        disturb();
        absl::SleepFor(absl::Milliseconds(100));
      }
      auto result = (*child)->Wait();
      if (!result.ok()) return result.status();
      if (result->exit_status != 0)
        return absl::InternalError(absl::StrCat(writer.comm, " failed"));
    }
    return stack_->WaitForRest(absl::Milliseconds(500));
  }

  // All that was written is charged to the two, and no IO failed.
  static void ExpectAll(const DeviceView& head) {
    EXPECT_EQ(head.written, kOneByOne + kManyAtOnce);
    EXPECT_EQ(head.books_write_bytes, head.written);
    EXPECT_EQ(head.lost_bytes, 0);
    EXPECT_EQ(head.errors, 0);
    EXPECT_EQ(head.as_top, head.written);
    EXPECT_EQ(head.by_comm, (std::map<std::string, uint64_t>{{"fbw-direct", kOneByOne},
                                                             {"fbw-aio", kManyAtOnce}}));
  }

  // Both writers write while the controllers fail in turns. How many requests were given up.
  uint64_t WriteWhilePathsFail(const std::vector<std::string>& controllers) {
    views_ = {{.name = views_[0].name, .number = views_[0].number}};
    const DeviceView& head = views_[0];
    auto before = stack_->SumOfPaths();
    size_t failures = 0;
    Judge([&] { return WriteWhile([&] { Fail(controllers[failures++ % controllers.size()]); }); });
    auto after = stack_->SumOfPaths();
    EXPECT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
    if (HasFatalFailure() || !before.ok() || !after.ok()) return 0;
    ExpectAll(head);
    EXPECT_EQ(head.kernel_write_bytes, head.books_write_bytes);
    EXPECT_EQ(head.kernel_read_bytes, head.books_read_bytes);
    EXPECT_EQ(after->write_bytes - before->write_bytes, head.written);
    // Each is one more for its path, without bytes.
    const uint64_t given_up = after->write_ios - before->write_ios - head.ios;
    std::printf("  %zu failures of controllers: of %llu requests %llu were given up\n", failures,
                static_cast<unsigned long long>(head.ios),
                static_cast<unsigned long long>(given_up));
    return given_up;
  }
};

TEST_P(FailoverTest, IsCountedOnce) {
  Watch(std::get<0>(GetParam()));
  if (IsSkipped() || HasFatalFailure()) return;
  const std::vector<std::string> controllers = stack_->controllers();
  ASSERT_EQ(controllers.size(), 2);
  uint64_t given_up = 0;
  for (int round = 0; round < 5 && given_up == 0; ++round) {
    given_up = WriteWhilePathsFail(controllers);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(given_up, 0);
  const DeviceView head = views_[0];
  Figures figures{.data = head.written, .all = head.written, .by_confidence = head.by_confidence};
  for (const auto& [comm, bytes] : head.by_comm) {
    if (comm.rfind("fbw-", 0) == 0) figures.all_right += bytes;
  }
  figures.data_right = figures.all_right;
  TellFigures("disk/nvme_failover", figures);

  // One that is taken out goes with its counters.
  views_ = {{.name = head.name, .number = head.number}};
  bool taken = false;
  Judge([&] {
    return WriteWhile([&] {
      if (!taken) {
        EXPECT_TRUE(Tell(absl::StrCat("/sys/class/nvme/", controllers[0], "/device/remove")));
      }
      taken = true;
    });
  });
  EXPECT_TRUE(Tell("/sys/bus/pci/rescan"));
  if (HasFatalFailure()) return;
  ExpectAll(views_[0]);
  if (stack_->IsCountedItself()) {
    EXPECT_EQ(views_[0].kernel_write_bytes, views_[0].books_write_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FailoverTest,
                         ::testing::Values(std::make_tuple(StackKind::kNvmeSlow,
                                                           FilesystemKind::kNone)),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(All, FlakyTest,
                         ::testing::Values(std::make_tuple(StackKind::kFlakey,
                                                           FilesystemKind::kNone)),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(
    All, LayersTest,
    ::testing::Combine(::testing::Values(StackKind::kLinear, StackKind::kStripe, StackKind::kCrypt,
                                         StackKind::kSnapshotOrigin, StackKind::kThin,
                                         StackKind::kRaid0, StackKind::kRaid1, StackKind::kRaid5,
                                         StackKind::kCryptOnRaid1, StackKind::kLvm,
                                         StackKind::kLvmSnapshot, StackKind::kLoopOnExt4,
                                         StackKind::kLoopOnXfs, StackKind::kNbdOnExt4,
                                         StackKind::kMultipath, StackKind::kNvme),
                       ::testing::Values(FilesystemKind::kExt4, FilesystemKind::kXfs)),
    CaseName);

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new fleetblame::testing::LastTracer);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
