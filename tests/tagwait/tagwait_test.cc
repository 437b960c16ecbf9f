// SPDX-License-Identifier: Apache-2.0
//
// Tag starvation against what the starved measure themselves. Every source that the kernel gives
// looks at the same run. Needs scsi_debug and null_blk, so it runs in a virtual machine
// (./run-tests vm --scenario tagwait) and skips elsewhere.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/histogram.h"
#include "node-agent/tracer/tagwait/tag_wait_tracer.h"
#include "tests/tagwait/load.h"

namespace fleetblame::tagwait_test {
namespace {

namespace fs = std::filesystem;
using agent::TagWaitTracer;

constexpr const char* kModules = "/vm/modules/";
constexpr auto kRun = std::chrono::seconds(10);

int Shell(const std::string& command) { return std::system(command.c_str()); }

bool Insert(const std::string& module, const std::string& parameters) {
  const std::string file = absl::StrCat(kModules, module, ".ko");
  return fs::exists(file) && Shell(absl::StrCat("insmod ", file, " ", parameters)) == 0;
}

std::string Line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file.good();
}

uint32_t DeviceOf(const std::string& disk) {
  unsigned major = 0;
  unsigned minor = 0;
  std::sscanf(Line("/sys/block/" + disk + "/dev").c_str(), "%u:%u", &major, &minor);
  return major << 20 | minor;
}

std::vector<std::string> WaitForDisks(const std::string& prefix, size_t count) {
  std::vector<std::string> disks;
  for (int i = 0; i < 100; ++i) {
    disks.clear();
    for (const auto& entry : fs::directory_iterator("/sys/block")) {
      const std::string name = entry.path().filename();
      if (name.rfind(prefix, 0) == 0 && fs::exists("/dev/" + name)) disks.push_back(name);
    }
    std::sort(disks.begin(), disks.end());
    if (disks.size() >= count) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return disks;
}

// Sums over rows of one source.
struct Sum {
  uint64_t waits = 0, rounds = 0, woke = 0, wait_ns = 0, max_ns = 0, over_1ms = 0, open = 0;
  uint64_t signal = 0, removal = 0, freeze = 0, unseen = 0, runs = 0;
  uint64_t hardware = 0, scheduler = 0, named = 0;
  std::set<uint32_t> nr_tags;
  std::map<std::pair<uint32_t, uint32_t>, double> held;  // (waiter, holder) -> mean tags
  std::map<std::string, uint64_t> losses;
  SparseHistogram wait;
  v1::TagWaits all;

  uint64_t Missed() const {
    auto it = losses.find("tagwait_hooks_missed");
    return it == losses.end() ? 0 : it->second;
  }
};

class Watch {
 public:
  // Every source that the kernel gives, all at once. Made once: the kernel looks at each program
  // for seconds. What is summed begins anew.
  static Watch& Begin() {
    static Watch* const watch = new Watch();
    watch->Collect(/*quiet=*/true);
    return *watch;
  }
  bool Has(v1::TagWaitSource source) const { return tracers_.contains(source); }
  bool empty() const { return tracers_.empty(); }

  std::map<v1::TagWaitSource, Sum> Collect(bool quiet = false) {
    std::map<v1::TagWaitSource, Sum> sums;
    for (auto& [source, tracer] : tracers_) {
      Sum& sum = sums[source];
      std::set<uint32_t> stacks;
      std::set<uint32_t> actors;
      auto status = tracer->Collect(&sum.all, &sum.losses, &stacks, &actors);
      EXPECT_TRUE(status.ok()) << status;
      const uint64_t runs = tracer->programs().Runs();
      sum.runs = runs - std::exchange(runs_[source], runs);
      AddRows(&sum);
      if (!quiet) Print(source, sum);
    }
    return sums;
  }

 private:
  Watch() {
    auto kernel = agent::KernelBtf::Load();
    if (!kernel.ok()) return;
    stats_ = bpf_enable_stats(BPF_STATS_RUN_TIME);
    for (auto source : {v1::TAG_WAIT_SOURCE_TRACEPOINT, v1::TAG_WAIT_SOURCE_FENTRY,
                        v1::TAG_WAIT_SOURCE_KPROBE, v1::TAG_WAIT_SOURCE_INFERRED}) {
      agent::TagProgramOptions options;
      options.source = source;
      auto tracer = TagWaitTracer::Create(options, *kernel);
      if (tracer.ok()) {
        tracers_[source] = *std::move(tracer);
      } else {
        std::printf("not here: %s\n", std::string(tracer.status().message()).c_str());
      }
    }
  }
  static void AddRows(Sum* sum) {
    sum->open = sum->all.open_waits();
    for (const v1::TagWaitRow& row : sum->all.rows()) {
      sum->waits += row.waits();
      sum->rounds += row.rounds();
      sum->woke += row.woke_at_once();
      sum->wait_ns += row.wait_ns();
      sum->max_ns = std::max(sum->max_ns, row.max_wait_ns());
      sum->signal += row.ended_by_signal();
      sum->removal += row.ended_by_removal();
      sum->freeze += row.ended_by_freeze();
      sum->unseen += row.ended_unseen();
      sum->nr_tags.insert(row.nr_tags());
      (row.kind() == v1::TAG_KIND_HARDWARE ? sum->hardware : sum->scheduler) += row.waits();
      if (row.intent() > 1 && row.actor() != 0) sum->named += row.waits();
      SparseHistogram wait;
      for (int i = 0; i < row.wait().buckets_size(); ++i) {
        wait.Add(static_cast<int>(row.wait().buckets(i)), row.wait().counts(i));
      }
      sum->wait.Merge(wait);
    }
    for (const auto& [bucket, count] : sum->wait.entries()) {
      if (HistogramLowerNs(bucket) >= 1'000'000) sum->over_1ms += count;
    }
    for (const v1::TagHolder& holder : sum->all.holders()) {
      sum->held[{holder.waiter_device(), holder.holder_device()}] +=
          static_cast<double>(holder.tags_sum()) / holder.samples();
    }
  }

  static void Print(v1::TagWaitSource source, const Sum& sum) {
    std::string lost;
    for (const auto& [name, count] : sum.losses) {
      if (count != 0) absl::StrAppend(&lost, " ", name, "=", count);
    }
    absl::PrintF(
        "%-32s waits %d rounds %d at once %d sum %.1f ms p50 %.2f p99 %.2f max %.2f ms, over 1 ms "
        "%d, open %d, ended by signal %d removal %d freeze %d unseen %d, program runs %d%s\n",
        v1::TagWaitSource_Name(source).substr(16), sum.waits, sum.rounds, sum.woke,
        sum.wait_ns / 1e6, sum.wait.QuantileNs(0.5) / 1e6, sum.wait.QuantileNs(0.99) / 1e6,
        sum.max_ns / 1e6, sum.over_1ms, sum.open, sum.signal, sum.removal, sum.freeze, sum.unseen,
        sum.runs, lost);
  }

  int stats_ = -1;  // counted as long as it is open
  std::map<v1::TagWaitSource, std::unique_ptr<TagWaitTracer>> tracers_;
  std::map<v1::TagWaitSource, uint64_t> runs_;
};

double Share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// The best source that sees every wait.
const Sum* Exact(const std::map<v1::TagWaitSource, Sum>& sums) {
  for (auto source :
       {v1::TAG_WAIT_SOURCE_TRACEPOINT, v1::TAG_WAIT_SOURCE_FENTRY, v1::TAG_WAIT_SOURCE_KPROBE}) {
    if (auto it = sums.find(source); it != sums.end()) return &it->second;
  }
  return nullptr;
}

void ExpectSourcesAgree(const std::map<v1::TagWaitSource, Sum>& sums) {
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  for (const auto& [source, sum] : sums) {
    const std::string name = v1::TagWaitSource_Name(source);
    if (source == v1::TAG_WAIT_SOURCE_INFERRED) {
      EXPECT_GE(sum.over_1ms, 0.9 * exact->over_1ms) << name;
      continue;
    }
    // Hooks that the kernel skipped are known, and may be missing on either side.
    const double missed = Share(sum.Missed() + exact->Missed(), exact->rounds);
    EXPECT_NEAR(Share(sum.rounds, exact->rounds), 1, 0.01 + missed) << name;
    EXPECT_NEAR(Share(sum.waits, exact->waits), 1, 0.01 + missed) << name;
    EXPECT_EQ(sum.open, 0u) << name;
    // Where a thread can be preempted in a hook, the kernel skips that hook for others meanwhile.
    EXPECT_LE(sum.unseen, sum.waits / 100) << name;
  }
}

// Makes somebody wait, so that the hooks for the end of waits are there; returns what was seen.
void WarmUp(Watch& watch, const std::string& device) {
  {
    Readers readers(device, 12);
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  // Waits whose end came before the hook are closed when they are this old.
  std::this_thread::sleep_for(std::chrono::seconds(6));
  std::printf("warming up:\n");
  for (const auto& [source, sum] : watch.Collect()) {
    EXPECT_EQ(sum.open, 0u) << v1::TagWaitSource_Name(source);
  }
}

void ExpectStall(const Sum& sum, const Stall& stall, uint64_t usual_ns) {
  const double whole = stall.StallNs(usual_ns);
  const double asleep = stall.asleep_ns;
  absl::PrintF("the readers measured %.1f ms of stall, %.1f ms of it asleep (%d reads, usual submit "
               "%.3f ms), traced %.1f ms: %+.2f %% of the whole, %+.2f %% of the sleep\n",
               whole / 1e6, asleep / 1e6, stall.reads, usual_ns / 1e6, sum.wait_ns / 1e6,
               100 * (Share(sum.wait_ns, whole) - 1), 100 * (Share(sum.wait_ns, asleep) - 1));
  EXPECT_LE(sum.wait_ns, 1.02 * whole);
  EXPECT_GE(sum.wait_ns, 0.98 * std::min(asleep, whole));
  // The two ends are near enough to say something.
  EXPECT_GT(asleep, 0.7 * whole);
}

void PrintSentence(const std::string& waiter, const std::string& holder, const Sum& sum,
                   const char* kind) {
  const double held = sum.held.count({DeviceOf(waiter), DeviceOf(holder)})
                          ? sum.held.at({DeviceOf(waiter), DeviceOf(holder)})
                          : 0;
  absl::PrintF("%s starved on %s tags, p99 %.1f ms; %s held %.1f of %d tags\n", waiter, kind,
               sum.wait.QuantileNs(0.99) / 1e6, holder, held,
               sum.nr_tags.empty() ? 0 : *sum.nr_tags.begin());
}

TEST(Sources, Load) {
  Watch& watch = Watch::Begin();
  EXPECT_FALSE(watch.empty());
  EXPECT_TRUE(watch.Has(v1::TAG_WAIT_SOURCE_KPROBE));
  EXPECT_TRUE(watch.Has(v1::TAG_WAIT_SOURCE_INFERRED));
  watch.Collect();
}

class ScsiDebug : public ::testing::Test {
 protected:
  void Start(const std::string& more) {
    if (!Insert("scsi_debug",
                "host_max_queue=4 max_queue=4 submit_queues=2 delay=0 num_tgts=2 "
                "dev_size_mb=32 " +
                    more)) {
      GTEST_SKIP() << "no scsi_debug to load here";
    }
    loaded_ = true;
    disks_ = WaitForDisks("sd", 2);
    ASSERT_GE(disks_.size(), 2u);
    for (const std::string& disk : disks_) {
      Write("/sys/block/" + disk + "/queue/scheduler", "none");
    }
  }
  void TearDown() override {
    if (loaded_) Shell("rmmod scsi_debug");
  }
  std::string Path(int i) const { return "/dev/" + disks_[i]; }
  bool loaded_ = false;
  std::vector<std::string> disks_;
};

// First of all: later ones leave the hook for the end of waits behind for a minute.
TEST_F(ScsiDebug, NothingRunsWhileTagsAreLeft) {
  Start("ndelay=500000");
  if (IsSkipped()) return;
  Watch& watch = Watch::Begin();
  Stall stall;
  {
    Readers few(Path(0), 2);
    std::this_thread::sleep_for(std::chrono::seconds(4));
    stall = few.Stop();
  }
  auto sums = watch.Collect();
  EXPECT_GT(stall.reads, 500u);
  for (const auto& [source, sum] : sums) {
    if (source == v1::TAG_WAIT_SOURCE_INFERRED) continue;
    EXPECT_EQ(sum.runs, 0u) << v1::TagWaitSource_Name(source);
    EXPECT_EQ(sum.all.rows_size(), 0);
  }
  absl::PrintF("%d reads that found a tag: %d program runs\n", stall.reads,
               Exact(sums) == nullptr ? 0 : Exact(sums)->runs);
}

TEST_F(ScsiDebug, SharedHardwareTags) {
  Start("ndelay=20000000");
  if (IsSkipped()) return;
  const uint64_t usual = UsualSubmitNs(Path(0));
  Watch& watch = Watch::Begin();
  ASSERT_FALSE(watch.empty());
  WarmUp(watch, Path(1));
  ActiveSampler sampler(disks_);
  Stall stall;
  {
    Readers few(Path(0), 2);
    Readers many(Path(1), 10);
    std::this_thread::sleep_for(kRun);
    stall.Add(few.Stop());
    stall.Add(many.Stop());
  }
  const std::vector<double> active = sampler.Stop();
  auto sums = watch.Collect();
  ExpectSourcesAgree(sums);
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  EXPECT_GT(exact->waits, 100u);
  EXPECT_EQ(exact->hardware, exact->waits);
  EXPECT_EQ(exact->named, exact->waits) << "waits without intent or actor";
  EXPECT_EQ(exact->nr_tags, std::set<uint32_t>{4});
  ExpectStall(*exact, stall, usual);
  // Before 5.16 debugfs does not know what is under way in a pool for all hardware queues.
  const bool told = active[0] + active[1] > 0;
  for (int waiter = 0; waiter < 2; ++waiter) {
    double sum = 0;
    for (int holder = 0; holder < 2; ++holder) {
      const auto key = std::pair(DeviceOf(disks_[waiter]), DeviceOf(disks_[holder]));
      ASSERT_TRUE(exact->held.contains(key));
      absl::PrintF("when %s waited %s held %.2f tags; debugfs says %.2f\n", disks_[waiter],
                   disks_[holder], exact->held.at(key), active[holder]);
      sum += exact->held.at(key);
      if (told) {
        EXPECT_NEAR(exact->held.at(key), active[holder], 1.0);
      }
    }
    EXPECT_NEAR(sum, 4, 0.5) << "the pool was full";
  }
  for (const v1::TagSet& set : exact->all.sets()) {
    absl::PrintF("set: %s\n", set.ShortDebugString());
    EXPECT_EQ(set.driver(), "scsi_debug");
    EXPECT_TRUE(set.host_wide());
    EXPECT_TRUE(set.shared());
    EXPECT_EQ(set.can_queue(), 4u);
  }
  EXPECT_EQ(exact->all.sets_size(), 1);
  for (const v1::TagDisk& disk : exact->all.disks()) EXPECT_EQ(disk.scheduler(), "none");
  PrintSentence(disks_[0], disks_[1], *exact, "hardware");
}

TEST_F(ScsiDebug, SchedulerTags) {
  Start("ndelay=20000000");
  if (IsSkipped()) return;
  Insert("mq-deadline", "");
  const std::string queue = "/sys/block/" + disks_[0] + "/queue/";
  if (!Write(queue + "scheduler", "mq-deadline")) GTEST_SKIP() << "no mq-deadline here";
  ASSERT_TRUE(Write(queue + "nr_requests", "4"));
  const uint64_t usual = UsualSubmitNs(Path(0));
  Watch& watch = Watch::Begin();
  Stall stall;
  {
    Readers readers(Path(0), 12);
    std::this_thread::sleep_for(kRun);
    stall = readers.Stop();
  }
  auto sums = watch.Collect();
  ExpectSourcesAgree(sums);
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  EXPECT_GT(exact->waits, 100u);
  EXPECT_EQ(exact->scheduler, exact->waits);
  // Of nr_requests a driver may reserve some for itself.
  ASSERT_EQ(exact->all.sets_size(), 1);
  EXPECT_EQ(exact->nr_tags, std::set<uint32_t>{4 - exact->all.sets(0).reserved_tags()});
  ExpectStall(*exact, stall, usual);
  ASSERT_EQ(exact->all.disks_size(), 1);
  EXPECT_EQ(exact->all.disks(0).scheduler(), "mq-deadline");
  EXPECT_EQ(exact->all.disks(0).nr_requests(), 4u);
  PrintSentence(disks_[0], disks_[0], *exact, "scheduler");
}

TEST_F(ScsiDebug, RemovalUnderStarvation) {
  Start("ndelay=20000000");
  if (IsSkipped()) return;
  Watch& watch = Watch::Begin();
  Stall stall;
  {
    Readers staying(Path(0), 8);
    Readers going(Path(1), 8);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    ASSERT_TRUE(Write("/sys/block/" + disks_[1] + "/device/delete", "1"));
    std::this_thread::sleep_for(std::chrono::seconds(2));
    stall.Add(going.Stop());
    stall.Add(staying.Stop());
  }
  auto sums = watch.Collect();
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  EXPECT_GT(exact->waits, 50u);
  // Before 5.16 a disk says it is going only when its queue is frozen already.
  EXPECT_GT(exact->removal + exact->freeze, 0u) << "no wait ended by the removal";
  for (const auto& [source, sum] : sums) EXPECT_EQ(sum.open, 0u) << v1::TagWaitSource_Name(source);
}

TEST_F(ScsiDebug, KilledWhileWaiting) {
  Start("ndelay=50000000");
  if (IsSkipped()) return;
  Watch& watch = Watch::Begin();
  // Readers in a process of their own, which is killed.
  const std::string command = absl::StrCat(
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do dd if=", Path(0),
      " of=/dev/null bs=4k count=4000 iflag=direct 2>/dev/null & p=\"$p $!\"; done; sleep 2; "
      "kill -9 $p; wait");
  Shell(command);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  auto sums = watch.Collect();
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  EXPECT_GT(exact->waits, 10u);
  EXPECT_GT(exact->signal, 0u);
  for (const auto& [source, sum] : sums) EXPECT_EQ(sum.open, 0u) << v1::TagWaitSource_Name(source);
}

TEST(NullBlk, SlowAndFastDiskOfOneSet) {
  if (!Insert("null_blk",
              "nr_devices=1 shared_tags=1 submit_queues=1 hw_queue_depth=4 irqmode=2 "
              "completion_nsec=1000000 gb=1")) {
    GTEST_SKIP() << "no null_blk to load here";
  }
  Shell("mount -t configfs configfs /sys/kernel/config 2>/dev/null");
  const std::string slow = "/sys/kernel/config/nullb/nullb9/";
  const bool made = Shell("mkdir " + slow) == 0 && Write(slow + "completion_nsec", "20000000") &&
                    Write(slow + "irqmode", "2") && Write(slow + "size", "1024") &&
                    Write(slow + "submit_queues", "1") && Write(slow + "hw_queue_depth", "4") &&
                    Write(slow + "blocksize", "512");
  if (fs::exists(slow + "shared_tags")) Write(slow + "shared_tags", "1");
  if (!made || !Write(slow + "power", "1")) {
    Shell("rmdir " + slow + "; rmmod null_blk");
    GTEST_SKIP() << "null_blk makes no second disk with this set here";
  }
  const std::vector<std::string> disks = WaitForDisks("nullb", 2);
  ASSERT_GE(disks.size(), 2u);
  for (const std::string& disk : disks) Write("/sys/block/" + disk + "/queue/scheduler", "none");
  const uint64_t usual = UsualSubmitNs("/dev/" + disks[0]);
  {
    Watch& watch = Watch::Begin();
    ActiveSampler sampler(disks);
    Stall stall;
    {
      Readers fast("/dev/" + disks[0], 4);
      Readers slow_readers("/dev/" + disks[1], 8);
      std::this_thread::sleep_for(kRun);
      stall.Add(fast.Stop());
      stall.Add(slow_readers.Stop());
    }
    const std::vector<double> active = sampler.Stop();
    auto sums = watch.Collect();
    ExpectSourcesAgree(sums);
    if (const Sum* exact = Exact(sums); exact != nullptr) {
      EXPECT_GT(exact->waits, 100u);
      ExpectStall(*exact, stall, usual);
      for (int holder = 0; holder < 2; ++holder) {
        const auto key = std::pair(DeviceOf(disks[0]), DeviceOf(disks[holder]));
        EXPECT_TRUE(exact->held.contains(key));
        if (!exact->held.contains(key)) continue;
        absl::PrintF("when %s waited %s held %.2f tags; debugfs says %.2f\n", disks[0],
                     disks[holder], exact->held.at(key), active[holder]);
        EXPECT_NEAR(exact->held.at(key), active[holder], 1.0);
      }
      PrintSentence(disks[0], disks[1], *exact, "hardware");
    }
  }
  Write(slow + "power", "0");
  Shell("rmdir " + slow + "; rmmod null_blk");
}

}  // namespace
}  // namespace fleetblame::tagwait_test
