// SPDX-License-Identifier: Apache-2.0
//
// Sampling of very many IOs (bpf/sample.bpf.h): the books balance to the byte although most IOs are
// not looked at, and the estimate for each process is as near to the truth as its error allows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::Operation;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kDiskBytes = 256 * kMiB;
std::string writer_program;

// What one process, or all, was charged with.
struct Charge {
  uint64_t ios = 0;
  uint64_t bytes = 0;
};

// All windows of a run, for one disk.
struct Account {
  std::map<std::string, Charge> by_comm;
  std::map<Confidence, Charge> by_confidence;
  uint64_t accounted_bytes = 0;  // recorded and lost
  uint64_t kernel_bytes = 0;
  std::map<std::string, uint64_t> losses;

  void Add(const agent::Snapshot& snapshot, Operation operation) {
    for (const agent::ActorDefinition& actor : snapshot.actors) comms_[actor.id] = actor.comm;
    for (const agent::Row& row : snapshot.rows) {
      if (row.key.operation != operation) continue;
      EXPECT_EQ(row.values.wait.total(),
                row.key.confidence == Confidence::kLost ? 0 : row.values.ios);
      for (Charge* charge :
           {&by_confidence[row.key.confidence], &by_comm[comms_[row.key.issuer_actor]]}) {
        charge->ios += row.values.ios;
        charge->bytes += row.values.bytes;
      }
    }
    for (const auto& [name, count] : snapshot.losses) losses[name] += count;
    for (const agent::Books& books : snapshot.books) {
      if (books.direction != operation) continue;
      accounted_bytes += books.recorded_bytes + books.lost_bytes;
      kernel_bytes += books.kernel_bytes;
    }
  }

 private:
  std::map<agent::ActorId, std::string> comms_;
};

struct Process {
  std::string comm;
  std::string mode;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t block = 0;
};

class SamplingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
    auto disk = LoopDisk::Create(kDiskBytes);
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    ASSERT_TRUE(disk_->Allocate().ok());
  }

  void Watch(uint32_t sample_above) {
    agent::BpfTracerOptions options;
    options.devices.patterns = {disk_->name()};
    options.sample_above = sample_above;
    auto tracer = agent::CreateBpfTracer(options);
    ASSERT_TRUE(tracer.ok()) << tracer.status();
    tracer_ = *std::move(tracer);
  }

  // Runs all processes at once, with windows of a fifth of a second.
  Account Run(const std::vector<Process>& processes, Operation operation) {
    Account account;
    std::vector<std::unique_ptr<ChildProcess>> children;
    for (const Process& process : processes) {
      auto child = ChildProcess::Start(
          {writer_program, "--comm", process.comm, "--mode", process.mode, "--path", disk_->path(),
           "--bytes", absl::StrCat(process.bytes), "--offset", absl::StrCat(process.offset),
           "--block", absl::StrCat(process.block)},
          ChildProcess::Output::kDiscard);
      EXPECT_TRUE(child.ok()) << child.status();
      if (child.ok()) children.push_back(*std::move(child));
    }
    auto collect = [&] {
      absl::SleepFor(absl::Milliseconds(200));
      auto snapshot = tracer_->Collect();
      EXPECT_TRUE(snapshot.ok()) << snapshot.status();
      if (snapshot.ok()) account.Add(*snapshot, operation);
    };
    for (auto& child : children) {
      while (!child->HasEnded()) collect();
      auto result = child->Wait();
      EXPECT_TRUE(result.ok() && result->exit_status == 0);
    }
    EXPECT_TRUE(disk_->WaitForRest(absl::Milliseconds(300)).ok());
    // The kernel hides the end of some IOs; they are found once the disk is idle.
    for (int i = 0; i < 20 && (i < 3 || account.accounted_bytes != account.kernel_bytes); ++i)
      collect();
    Print(account);
    return account;
  }

  static void Print(const Account& account) {
    for (const auto& [comm, charge] : account.by_comm) {
      std::printf("%-15s %8lu IOs %6.2f MiB\n", comm.c_str(), charge.ios,
                  charge.bytes / double{kMiB});
    }
    for (const auto& [confidence, charge] : account.by_confidence) {
      std::printf("confidence %d    %8lu IOs %6.2f MiB\n", static_cast<int>(confidence), charge.ios,
                  charge.bytes / double{kMiB});
    }
  }

  std::unique_ptr<LoopDisk> disk_;
  std::unique_ptr<agent::Tracer> tracer_;
};

// Each process is charged as near to the truth as six standard errors, which a right estimate
// misses once in 500 million runs. The weights of two processes may differ from their mean: twice
// the variance is more than what that does.
void ExpectNearTheTruth(const Account& account, const std::vector<Process>& processes) {
  EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
  double ios = 0;
  double bytes = 0;
  for (const Process& process : processes) {
    ios += process.bytes / process.block;
    bytes += process.bytes;
  }
  EXPECT_GE(account.kernel_bytes, bytes);
  const double estimated = account.losses.at("ios_estimated");
  EXPECT_GT(estimated, ios / 4);
  const double variance = 2 * account.losses.at("ios_estimated_variance") / ios;  // of each IO
  for (const Process& process : processes) {
    const double own = process.bytes / process.block;
    const double error = 6 * std::sqrt(own * (1 - own / ios) * variance);
    const auto charged = account.by_comm.find(process.comm);
    ASSERT_NE(charged, account.by_comm.end()) << process.comm;
    EXPECT_NEAR(charged->second.ios, own, error) << process.comm;
    double byte_error = 0;
    for (const Process& other : processes) {
      const double part = (&other == &process ? 1 - process.bytes / bytes : process.bytes / bytes);
      byte_error += part * part * other.bytes * other.block * variance;
    }
    EXPECT_NEAR(charged->second.bytes, process.bytes, 6 * std::sqrt(byte_error)) << process.comm;
    std::printf("%-15s true %.0f IOs, error allowed %.1f %%\n", process.comm.c_str(), own,
                100 * error / own);
  }
}

// Before 6.5 a bio does not say that it is direct IO.
bool TellsDirectWrites() {
  auto kernel = agent::KernelBtf::Load();
  return kernel.ok() && kernel->Enumerator("BIO_PAGE_PINNED").has_value();
}

TEST_F(SamplingTest, DirectWrites) {
  if (!TellsDirectWrites()) GTEST_SKIP() << "this kernel does not tell direct writes from others";
  ASSERT_NO_FATAL_FAILURE(Watch(2000));
  const std::vector<Process> processes = {
      {"fbw-three", "pwrite-direct", 0, 192 * kMiB, 4096},
      {"fbw-one", "pwrite-direct", 192 * kMiB, 64 * kMiB, 4096}};
  ExpectNearTheTruth(Run(processes, Operation::kWrite), processes);
}

// As many bytes in fewer IOs.
TEST_F(SamplingTest, ReadsOfTwoSizes) {
  ASSERT_NO_FATAL_FAILURE(Watch(2000));
  const std::vector<Process> processes = {{"fbr-small", "read-direct", 0, kDiskBytes, 4096},
                                          {"fbr-large", "read-direct", 0, kDiskBytes, 16384}};
  ExpectNearTheTruth(Run(processes, Operation::kRead), processes);
}

TEST_F(SamplingTest, BelowTheThresholdEachIoIsLookedAt) {
  ASSERT_NO_FATAL_FAILURE(Watch(1'000'000));
  const Account account =
      Run({{"fbw-direct", "pwrite-direct", 0, 32 * kMiB, 4096}}, Operation::kWrite);
  EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
  EXPECT_FALSE(account.by_confidence.contains(Confidence::kEstimated));
}

// Who asks for each IO gets each IO.
TEST_F(SamplingTest, NothingIsSkippedWhileTraceModeIsOn) {
  ASSERT_NO_FATAL_FAILURE(Watch(2000));
  ASSERT_TRUE(tracer_->SetTrace(true).ok());
  const Account account =
      Run({{"fbw-direct", "pwrite-direct", 0, 32 * kMiB, 4096}}, Operation::kWrite);
  EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
  EXPECT_FALSE(account.by_confidence.contains(Confidence::kEstimated));
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
