// SPDX-License-Identifier: Apache-2.0
//
// Sampling of very many IOs (bpf/sample.bpf.h): the books balance to the byte although most IOs are
// not looked at, and the estimate for each process is as near to the truth as its error allows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
constexpr uint64_t kDiskBytes = 128 * kMiB;
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

double IosOf(const std::vector<Process>& processes) {
  double ios = 0;
  for (const Process& process : processes) ios += process.bytes / process.block;
  return ios;
}

class SamplingTest : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { sampling_tracer_.reset(); }

  void SetUp() override {
    if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
    auto disk = LoopDisk::Create(kDiskBytes);
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    ASSERT_TRUE(disk_->Allocate().ok());
  }

  // Watches the disk with a tracer that looks at each of so many IOs a second, and returns it.
  absl::StatusOr<std::unique_ptr<agent::Tracer>> Watch(uint32_t sample_above) {
    agent::BpfTracerOptions options;
    options.devices.patterns = {disk_->name()};
    options.sample_above = sample_above;
    return agent::CreateBpfTracer(options);
  }

  // How often each of two processes reads in a second. (One alone is slow where a CPU that has
  // nothing to do is long in coming back, as an emulated one is.)
  double MeasureRate() {
    constexpr uint64_t kIos = 4096;
    const absl::Time begin = absl::Now();
    std::vector<std::unique_ptr<ChildProcess>> children;
    for (int i = 0; i < 2; ++i) {
      auto child = Start({"fbr-trial", "read-direct", 0, kIos * 4096, 4096});
      EXPECT_TRUE(child.ok()) << child.status();
      if (child.ok()) children.push_back(*std::move(child));
    }
    for (auto& child : children) {
      auto result = child->Wait();
      EXPECT_TRUE(result.ok() && result->exit_status == 0);
    }
    const double rate = kIos / absl::ToDoubleSeconds(absl::Now() - begin);
    std::printf("each process reads %.0f times a second\n", rate);
    return rate;
  }

  // The same with one that looks at a sixteenth of what a process comes to on this machine, or
  // less: an eighth of the rate above which it skips any. All tests share it, as loading it takes
  // long in a virtual machine.
  void WatchAndSkip() {
    if (sampling_tracer_ == nullptr) {
      const double rate = MeasureRate();
      auto tracer = Watch(std::max(1.0, 8 * rate / looks_at_one_in_));
      ASSERT_TRUE(tracer.ok()) << tracer.status();
      sampling_tracer_ = *std::move(tracer);
    }
    tracer_ = sampling_tracer_.get();
    agent::DeviceSelection selection;
    selection.patterns = {disk_->name()};
    ASSERT_TRUE(tracer_->SetDevices(selection).ok());
    ASSERT_TRUE(tracer_->SetTrace(false).ok());
    ASSERT_TRUE(disk_->WaitForRest(absl::Milliseconds(100)).ok());
    ASSERT_TRUE(tracer_->Collect().ok());
  }

  absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Process& process) {
    return ChildProcess::Start(
        {writer_program, "--comm", process.comm, "--mode", process.mode, "--path", disk_->path(),
         "--bytes", absl::StrCat(process.bytes), "--offset", absl::StrCat(process.offset),
         "--block", absl::StrCat(process.block)},
        ChildProcess::Output::kDiscard);
  }

  // Runs all processes at once, with windows of a fifth of a second.
  Account Run(const std::vector<Process>& processes, Operation operation) {
    Account account;
    std::vector<std::unique_ptr<ChildProcess>> children;
    for (const Process& process : processes) {
      auto child = Start(process);
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

  // Runs all processes at once, with a tracer that skips IOs. Another machine may have slowed this
  // one down since its speed was measured: then nothing was skipped, and it is measured once more.
  Account RunAndSkip(const std::vector<Process>& processes, Operation operation) {
    for (int attempt = 0;; ++attempt) {
      WatchAndSkip();
      if (HasFailure()) return {};
      Account account = Run(processes, operation);
      if (account.losses["ios_estimated"] > IosOf(processes) / 8 || attempt == 3) return account;
      sampling_tracer_.reset();
      looks_at_one_in_ *= 8;
    }
  }

  std::unique_ptr<LoopDisk> disk_;
  agent::Tracer* tracer_ = nullptr;  // on trial
  static double looks_at_one_in_;
  static std::unique_ptr<agent::Tracer> sampling_tracer_;
};

double SamplingTest::looks_at_one_in_ = 16;
std::unique_ptr<agent::Tracer> SamplingTest::sampling_tracer_;

// Each process is charged as near to the truth as six standard errors, which a right estimate
// misses once in 500 million runs. The weights of two processes may differ from their mean: twice
// the variance is more than what that does.
void ExpectNearTheTruth(const Account& account, const std::vector<Process>& processes) {
  EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
  const double ios = IosOf(processes);
  double bytes = 0;
  for (const Process& process : processes) bytes += process.bytes;
  EXPECT_GE(account.kernel_bytes, bytes);
  const double estimated = account.losses.at("ios_estimated");
  EXPECT_GT(estimated, ios / 8);
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

TEST_F(SamplingTest, sampled_direct_writes) {
  if (!TellsDirectWrites()) GTEST_SKIP() << "this kernel does not tell direct writes from others";
  const std::vector<Process> processes = {{"fbw-three", "pwrite-direct", 0, 96 * kMiB, 4096},
                                          {"fbw-one", "pwrite-direct", 96 * kMiB, 32 * kMiB, 4096}};
  ExpectNearTheTruth(RunAndSkip(processes, Operation::kWrite), processes);
}

// As many bytes in fewer IOs.
TEST_F(SamplingTest, sampled_reads) {
  const std::vector<Process> processes = {{"fbr-small", "read-direct", 0, kDiskBytes, 4096},
                                          {"fbr-large", "read-direct", 0, kDiskBytes, 16384}};
  ExpectNearTheTruth(RunAndSkip(processes, Operation::kRead), processes);
}

// Who asks for each IO gets each IO.
TEST_F(SamplingTest, sampled_not_in_trace_mode) {
  ASSERT_NO_FATAL_FAILURE(WatchAndSkip());
  ASSERT_TRUE(tracer_->SetTrace(true).ok());
  const Account account =
      Run({{"fbw-direct", "pwrite-direct", 0, 16 * kMiB, 4096}}, Operation::kWrite);
  EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
  EXPECT_FALSE(account.by_confidence.contains(Confidence::kEstimated));
}

TEST_F(SamplingTest, BelowTheThresholdEachIoIsLookedAt) {
  sampling_tracer_.reset();  // one at a time
  auto tracer = Watch(1'000'000);
  ASSERT_TRUE(tracer.ok()) << tracer.status();
  tracer_ = tracer->get();
  const Account account =
      Run({{"fbw-direct", "pwrite-direct", 0, 16 * kMiB, 4096}}, Operation::kWrite);
  EXPECT_EQ(account.accounted_bytes, account.kernel_bytes);
  EXPECT_FALSE(account.by_confidence.contains(Confidence::kEstimated));
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
