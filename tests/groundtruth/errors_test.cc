// SPDX-License-Identifier: Apache-2.0
//
// IO that fails and IO that a driver gives back, on a disk that does both when told to
// (scsi_debug): errors and requeues are counted as the kernel counts them, and blamed on whoever
// asked.
//
//   tests/vm/run.py --kernel 6.1 --scenario 'scsi_*'    (in a virtual machine)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/groundtruth/scenario.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Operation;

std::string writer_program;

constexpr char kDriver[] = "/sys/bus/pseudo/drivers/scsi_debug/";
// What the driver calls its options, and the sectors that it cannot read.
constexpr char kMediumError[] = "2";
constexpr char kTransportError[] = "16";
constexpr uint64_t kBadSector = 0x1234;

uint64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return std::strtoull(text.c_str(), nullptr, 0);
}

// Keeps this thread where it is, as each CPU decides by itself which IOs to skip.
class OneCpu {
 public:
  OneCpu() {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OneCpu() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

struct Sums {
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
};

class ErrorsTest : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { defendant_.reset(); }

  void SetUp() override {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block", none)) {
      std::ifstream model(entry.path() / "device/model");
      std::string name;
      if (model >> name && name == "scsi_debug") disk_ = entry.path().filename();
    }
    if (disk_.empty()) GTEST_SKIP() << "no disk of scsi_debug";
    if (defendant_ == nullptr) {
      agent::BpfTracerOptions options;
      // Skips whatever it may, but not before a CPU has started 1,024 IOs.
      options.sample_above = 1;
      auto tracer = agent::CreateBpfTracer(options);
      ASSERT_TRUE(tracer.ok()) << tracer.status();
      auto defendant = Defendant::Create(*std::move(tracer));
      ASSERT_TRUE(defendant.ok()) << defendant.status();
      defendant_ = *std::move(defendant);
    }
    ASSERT_EQ(defendant_->Watch({disk_}), absl::OkStatus());
    struct stat st {};
    ASSERT_EQ(stat(path().c_str(), &st), 0);
    number_ = {major(st.st_rdev), minor(st.st_rdev)};
  }

  void TearDown() override {
    Tell("opts", "0");
    Tell("every_nth", "0");
  }

  static void Tell(const std::string& setting, const std::string& value) {
    std::ofstream(absl::StrCat(kDriver, setting)) << value;
  }

  std::string path() const { return absl::StrCat("/dev/", disk_); }
  uint64_t FailedCommands() const {
    return NumberIn(absl::StrCat("/sys/block/", disk_, "/device/ioerr_cnt"));
  }

  void Begin() {
    ASSERT_EQ(defendant_->BeginSpan({number_}), absl::OkStatus());
    failed_before_ = FailedCommands();
    auto counters = ReadDiskCounters(disk_);
    ASSERT_TRUE(counters.ok()) << counters.status();
    before_ = *counters;
  }

  // Ends the span; what was charged to `comm` in it. The books must balance.
  Sums End(const std::string& comm, Operation direction) {
    absl::SleepFor(absl::Milliseconds(300));
    Sums sums;
    auto after = ReadDiskCounters(disk_);
    EXPECT_TRUE(after.ok());
    EXPECT_EQ(defendant_->EndSpan({number_}), absl::OkStatus());
    uint64_t others = 0;
    for (const ResolvedRow& row : defendant_->ledger().rows()) {
      if (DirectionOf(row.operation) != direction) continue;
      if (row.dirtier_comm != comm) {
        others += row.bytes;
        continue;
      }
      sums.ios += row.ios;
      sums.bytes += row.bytes;
      sums.errors += row.errors;
      sums.requeues += row.requeues;
    }
    EXPECT_EQ(others, 0);
    const bool reads = direction == Operation::kRead;
    const uint64_t kernel =
        reads ? after->read_bytes - before_.read_bytes : after->write_bytes - before_.write_bytes;
    EXPECT_EQ(sums.bytes, kernel);
    if (HasFailure()) std::printf("%s", Dump(defendant_->ledger(), 20).c_str());
    return sums;
  }

  std::string disk_;
  agent::DeviceNumber number_;
  static std::unique_ptr<Defendant> defendant_;  // loading it takes long
  DiskCounters before_;
  uint64_t failed_before_ = 0;
};

std::unique_ptr<Defendant> ErrorsTest::defendant_;

TEST_F(ErrorsTest, scsi_read_error) {
  Tell("opts", kMediumError);
  Begin();
  EXPECT_FALSE(RunCommand({writer_program, "--comm", "fbw-unlucky", "--mode", "read-some", "--path",
                           path(), "--offset", absl::StrCat((kBadSector & ~7) * 512)})
                   .ok());
  const Sums sums = End("fbw-unlucky", Operation::kRead);
  EXPECT_EQ(sums.ios, 1);
  EXPECT_EQ(sums.errors, 1);
  EXPECT_EQ(sums.bytes, 4096);
}

TEST_F(ErrorsTest, scsi_write_requeued) {
  Begin();
  Tell("every_nth", "7");
  Tell("opts", kTransportError);
  EXPECT_EQ(RunCommand({writer_program, "--comm", "fbw-patient", "--mode", "pwrite-direct",
                        "--path", path(), "--bytes", absl::StrCat(64 * 4096), "--block", "4096"})
                .status(),
            absl::OkStatus());
  const Sums sums = End("fbw-patient", Operation::kWrite);
  const uint64_t failed = FailedCommands() - failed_before_;
  EXPECT_EQ(sums.ios, 64);
  EXPECT_EQ(sums.errors, 0);
  EXPECT_GE(failed, 8);
  EXPECT_EQ(sums.requeues, failed);
}

// Of an IO that was not looked at and that fails, all is known but who asked. The last test: from
// here on IOs are skipped.
TEST_F(ErrorsTest, scsi_read_error_sampled) {
  Tell("delay", "0");
  const OneCpu here;
  const int fd = open(path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  ASSERT_GE(fd, 0) << path() << ": " << std::strerror(errno);
  alignas(4096) static char page[4096];
  Begin();
  constexpr int kGood = 4096;
  for (int i = 0; i < kGood; ++i) EXPECT_EQ(pread(fd, page, sizeof(page), 0), sizeof(page));
  Tell("opts", kMediumError);
  constexpr int kBad = 200;
  for (int i = 0; i < kBad; ++i)
    EXPECT_EQ(pread(fd, page, sizeof(page), (kBadSector & ~7) * 512), -1);
  close(fd);
  absl::SleepFor(absl::Milliseconds(300));
  auto after = ReadDiskCounters(disk_);
  ASSERT_TRUE(after.ok());
  ASSERT_EQ(defendant_->EndSpan({number_}), absl::OkStatus());
  Sums all;
  Sums lost;
  uint64_t estimated = 0;
  for (const ResolvedRow& row : defendant_->ledger().rows()) {
    if (row.operation != Operation::kRead) continue;
    for (Sums* sums : {&all, row.confidence == agent::Confidence::kLost ? &lost : nullptr}) {
      if (sums == nullptr) continue;
      sums->ios += row.ios;
      sums->bytes += row.bytes;
      sums->errors += row.errors;
    }
    if (row.confidence == agent::Confidence::kEstimated) estimated += row.ios;
  }
  EXPECT_GT(estimated, kGood / 4);
  EXPECT_EQ(all.ios, kGood + kBad);
  EXPECT_EQ(all.bytes, after->read_bytes - before_.read_bytes);
  EXPECT_EQ(all.errors, kBad);
  EXPECT_GT(lost.errors, kBad / 4);
  EXPECT_EQ(lost.ios, lost.errors);
  if (HasFailure()) std::printf("%s", Dump(defendant_->ledger(), 20).c_str());
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
