// SPDX-License-Identifier: Apache-2.0
//
// Tag starvation against what the starved measure themselves. Every source that the kernel gives
// looks at the same run. Needs scsi_debug and null_blk, so it runs in a virtual machine
// (./run-tests vm --scenario tagwait) and skips elsewhere.
//
// usage: tagwait_test [--minutes=N, how long NothingLeaks lasts; by default 12 seconds]
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "bpf/tagwait_abi.h"
#include "common/histogram.h"
#include "node-agent/tracer/tagwait/tag_wait_tracer.h"
#include "tests/tagwait/load.h"

namespace fleetblame::tagwait_test {
namespace {

namespace fs = std::filesystem;
using agent::TagWaitTracer;

constexpr const char* kModules = "/vm/modules/";
constexpr auto kRun = std::chrono::seconds(6);
constexpr uint64_t kLongNs = 1'000'000;
// What the clocks of two programs may differ in.
constexpr double kClocks = 0.005;
// How long NothingLeaks lasts.
std::chrono::seconds leak_run(12);

int Shell(const std::string& command) { return std::system(command.c_str()); }

bool Insert(const std::string& module, const std::string& parameters) {
  const std::string file = absl::StrCat(kModules, module, ".ko");
  return fs::exists(file) && Shell(absl::StrCat("insmod ", file, " ", parameters)) == 0;
}

template <typename Condition>
bool WaitUntil(std::chrono::seconds most, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// A disk that has just come may be in use for a moment.
bool Remove(const std::string& module) {
  return WaitUntil(std::chrono::seconds(60),
                   [&] { return Shell(absl::StrCat("rmmod ", module, " 2>/dev/null")) == 0; });
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

// A disk that opens has come to its end of being set up, its scheduler included.
bool Opens(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool TakeScheduler(const std::string& disk) {
  const std::string file = "/sys/block/" + disk + "/queue/scheduler";
  Write(file, "none");
  return absl::StrContains(Line(file), "[none]");
}

void WithoutScheduler(const std::string& disk) {
  EXPECT_TRUE(WaitUntil(std::chrono::seconds(10), [&] { return TakeScheduler(disk); })) << disk;
}

std::vector<std::string> WaitForDisks(const std::string& prefix, size_t count) {
  std::vector<std::string> disks;
  for (int i = 0; i < 100; ++i) {
    disks.clear();
    for (const auto& entry : fs::directory_iterator("/sys/block")) {
      const std::string name = entry.path().filename();
      if (name.rfind(prefix, 0) == 0 && Opens("/dev/" + name)) disks.push_back(name);
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
  uint64_t hardware = 0, scheduler = 0, reserved = 0, named = 0;
  std::set<uint32_t> nr_tags;
  std::map<std::pair<uint32_t, uint32_t>, double> held;  // (waiter, holder) -> mean tags
  std::map<std::string, uint64_t> losses;
  SparseHistogram wait;
  std::vector<fb_tag_ended> ended;
  v1::TagWaits all;

  // Hooks that the kernel skipped, as it says itself.
  uint64_t Missed() const {
    auto it = losses.find("tagwait_hooks_missed");
    return it == losses.end() ? 0 : it->second;
  }
};

void AddRows(Sum* sum) {
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
    if (row.reserved()) sum->reserved += row.waits();
    if (row.intent() > 1 && row.actor() != 0) sum->named += row.waits();
    SparseHistogram wait;
    for (int i = 0; i < row.wait().buckets_size(); ++i) {
      wait.Add(static_cast<int>(row.wait().buckets(i)), row.wait().counts(i));
    }
    sum->wait.Merge(wait);
  }
  for (const auto& [bucket, count] : sum->wait.entries()) {
    if (HistogramLowerNs(bucket) >= kLongNs) sum->over_1ms += count;
  }
  for (const v1::TagHolder& holder : sum->all.holders()) {
    sum->held[{holder.waiter_device(), holder.holder_device()}] +=
        static_cast<double>(holder.tags_sum()) / holder.samples();
  }
}

void Print(v1::TagWaitSource source, const Sum& sum) {
  std::string lost;
  for (const auto& [name, count] : sum.losses) {
    if (count != 0) absl::StrAppend(&lost, " ", name, "=", count);
  }
  absl::PrintF(
      "%-10s waits %d rounds %d at once %d sum %.1f ms p50 %.2f p99 %.2f max %.2f ms, over 1 ms "
      "%d, open %d, ended by signal %d removal %d freeze %d unseen %d, program runs %d%s\n",
      v1::TagWaitSource_Name(source).substr(16), sum.waits, sum.rounds, sum.woke, sum.wait_ns / 1e6,
      sum.wait.QuantileNs(0.5) / 1e6, sum.wait.QuantileNs(0.99) / 1e6, sum.max_ns / 1e6,
      sum.over_1ms, sum.open, sum.signal, sum.removal, sum.freeze, sum.unseen, sum.runs, lost);
}

// One source, with each wait by itself beside the sums.
class Source {
 public:
  explicit Source(std::unique_ptr<TagWaitTracer> tracer) : tracer_(std::move(tracer)) {
    ring_ = ring_buffer__new(tracer_->programs().StreamFd(), Take, &ended_, nullptr);
  }
  ~Source() { ring_buffer__free(ring_); }

  const TagWaitTracer& tracer() const { return *tracer_; }

  Sum Collect(bool quiet) {
    Sum sum;
    std::set<uint32_t> stacks;
    std::set<uint32_t> actors;
    auto status = tracer_->Collect(&sum.all, &sum.losses, &stacks, &actors);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_NE(ring_, nullptr);
    if (ring_ != nullptr) ring_buffer__consume(ring_);
    sum.ended = std::exchange(ended_, {});
    const uint64_t runs = tracer_->programs().Runs();
    sum.runs = runs - std::exchange(runs_, runs);
    AddRows(&sum);
    if (!quiet) Print(tracer_->source(), sum);
    return sum;
  }

  // Waits under way, counted in the kernel's own table.
  size_t Entries() const {
    const int fd = tracer_->programs().WaitsFd();
    size_t count = 0;
    uint32_t key = 0;
    for (bool first = true; bpf_map_get_next_key(fd, first ? nullptr : &key, &key) == 0;) {
      first = false;
      ++count;
    }
    return count;
  }

 private:
  static int Take(void* out, void* data, size_t size) {
    if (size >= sizeof(fb_tag_ended)) {
      static_cast<std::vector<fb_tag_ended>*>(out)->push_back(*static_cast<fb_tag_ended*>(data));
    }
    return 0;
  }

  std::unique_ptr<TagWaitTracer> tracer_;
  ring_buffer* ring_ = nullptr;
  std::vector<fb_tag_ended> ended_;
  uint64_t runs_ = 0;
};

std::unique_ptr<Source> Open(v1::TagWaitSource source) {
  auto kernel = agent::KernelBtf::Load();
  if (!kernel.ok()) return nullptr;
  agent::TagProgramOptions options;
  options.source = source;
  options.stream = true;
  auto tracer = TagWaitTracer::Create(options, *kernel);
  if (tracer.ok()) return std::make_unique<Source>(*std::move(tracer));
  std::printf("not here: %s\n", std::string(tracer.status().message()).c_str());
  return nullptr;
}

using Sums = std::map<v1::TagWaitSource, Sum>;

class Watch {
 public:
  // Every source that the kernel gives, all at once. Made once: the kernel looks at each program
  // for seconds. What is summed begins anew.
  static Watch& Begin() {
    static Watch* const watch = new Watch();
    watch->Collect(/*quiet=*/true);
    return *watch;
  }
  bool Has(v1::TagWaitSource source) const { return sources_.contains(source); }
  bool empty() const { return sources_.empty(); }

  Sums Collect(bool quiet = false) {
    Sums sums;
    for (auto& [kind, source] : sources_) sums[kind] = source->Collect(quiet);
    return sums;
  }
  bool SeesEnds() const {
    return std::all_of(sources_.begin(), sources_.end(), [](const auto& item) {
      return item.first == v1::TAG_WAIT_SOURCE_INFERRED ||
             item.second->tracer().programs().SeesEnds();
    });
  }
  bool NothingUnderWay() const {
    return std::all_of(sources_.begin(), sources_.end(),
                       [](const auto& item) { return item.second->Entries() == 0; });
  }
  std::map<v1::TagWaitSource, size_t> Entries() const {
    std::map<v1::TagWaitSource, size_t> entries;
    for (const auto& [kind, source] : sources_) entries[kind] = source->Entries();
    return entries;
  }

 private:
  Watch() {
    stats_ = bpf_enable_stats(BPF_STATS_RUN_TIME);
    for (auto kind : {v1::TAG_WAIT_SOURCE_TRACEPOINT, v1::TAG_WAIT_SOURCE_FENTRY,
                      v1::TAG_WAIT_SOURCE_KPROBE, v1::TAG_WAIT_SOURCE_INFERRED}) {
      if (auto source = Open(kind); source != nullptr) sources_[kind] = std::move(source);
    }
  }

  int stats_ = -1;  // counted as long as it is open
  std::map<v1::TagWaitSource, std::unique_ptr<Source>> sources_;
};

double Share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// The best source that sees every wait.
const Sum* Exact(const Sums& sums) {
  for (auto source :
       {v1::TAG_WAIT_SOURCE_TRACEPOINT, v1::TAG_WAIT_SOURCE_FENTRY, v1::TAG_WAIT_SOURCE_KPROBE}) {
    if (auto it = sums.find(source); it != sums.end()) return &it->second;
  }
  return nullptr;
}

bool Overlap(const fb_tag_ended& a, uint64_t begin_ns, uint64_t end_ns) {
  return a.begin_ns < end_ns && a.end_ns > begin_ns;
}

using ByThread = std::map<uint32_t, std::vector<fb_tag_ended>>;

ByThread ByThreadOf(const Sum& sum) {
  ByThread threads;
  for (const fb_tag_ended& wait : sum.ended) {
    if (wait.end_ns != 0) threads[wait.tid].push_back(wait);
  }
  return threads;
}

bool Found(const ByThread& threads, uint32_t tid, uint64_t begin_ns, uint64_t end_ns) {
  auto it = threads.find(tid);
  return it != threads.end() &&
         std::any_of(it->second.begin(), it->second.end(),
                     [&](const fb_tag_ended& wait) { return Overlap(wait, begin_ns, end_ns); });
}

// Each long wait of the exact source is met by an inferred one of the same thread.
void ExpectInferred(const Sum& inferred, const Sum& exact) {
  const ByThread threads = ByThreadOf(inferred);
  uint64_t all = 0;
  uint64_t found = 0;
  for (const fb_tag_ended& wait : exact.ended) {
    if (wait.end_ns == 0 || !wait.slept || wait.end_ns - wait.begin_ns <= kLongNs) continue;
    ++all;
    found += Found(threads, wait.tid, wait.begin_ns, wait.end_ns);
  }
  absl::PrintF("of %d waits over 1 ms inference found %d: %.1f %%\n", all, found,
               all == 0 ? 0 : 100.0 * found / all);
  EXPECT_GT(all, 0u);
  EXPECT_GE(found, 0.9 * all);
}

void ExpectSourcesAgree(const Sums& sums) {
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  for (const auto& [source, sum] : sums) {
    const std::string name = v1::TagWaitSource_Name(source);
    if (source == v1::TAG_WAIT_SOURCE_INFERRED) {
      ExpectInferred(sum, *exact);
      continue;
    }
    // Hooks that the kernel skipped are known, and may be missing on either side.
    const double missed = sum.Missed() + exact->Missed();
    EXPECT_NEAR(sum.rounds, exact->rounds, 0.01 * exact->rounds + missed) << name;
    EXPECT_NEAR(sum.waits, exact->waits, 0.01 * exact->waits + missed) << name;
    EXPECT_LE(sum.open, sum.Missed()) << name;
    // Where a thread can be preempted in a hook, the kernel skips that hook for others meanwhile.
    EXPECT_LE(sum.unseen, sum.waits / 100 + sum.Missed()) << name;
  }
}

// Long enough for waits whose hook was skipped to be closed.
constexpr auto kUntilClosed = std::chrono::seconds(6);

// Counts in the kernel's own tables what is still under way when nobody waits any more.
void ExpectNothingLeft(Watch& watch) {
  size_t before = 0;
  for (const auto& [source, entries] : watch.Entries()) before += entries;
  if (before > 0) std::this_thread::sleep_for(kUntilClosed);
  watch.Collect(/*quiet=*/true);
  for (const auto& [source, entries] : watch.Entries()) {
    EXPECT_EQ(entries, 0u) << v1::TagWaitSource_Name(source);
  }
  absl::PrintF("waits left open when nobody waited: %d, and after what closes old ones: 0\n",
               before);
}

// Makes somebody wait until the hooks for the end of waits are there. They stay for a minute after
// the last wait.
void WarmUp(Watch& watch, const std::string& device) {
  {
    Readers readers(device, 12);
    EXPECT_TRUE(WaitUntil(std::chrono::seconds(120),
                          [&] { return watch.SeesEnds() && readers.slept() >= 12; }));
  }
  // Waits whose end came before the hook are closed when they are this old.
  if (!watch.NothingUnderWay()) std::this_thread::sleep_for(kUntilClosed);
  for (const auto& [source, sum] : watch.Collect(/*quiet=*/true)) {
    EXPECT_EQ(sum.open, 0u) << v1::TagWaitSource_Name(source);
  }
}

// A while, and on a slow machine until enough of them have waited.
void RunUntil(const std::vector<const Readers*>& readers, uint64_t enough) {
  std::this_thread::sleep_for(kRun);
  EXPECT_TRUE(WaitUntil(std::chrono::seconds(180), [&] {
    uint64_t slept = 0;
    for (const Readers* each : readers) slept += each->slept();
    return slept >= enough;
  }));
}

// Until so many wait at once as every source that sees all waits says.
bool WaitForWaiters(const Watch& watch, size_t waiters) {
  return WaitUntil(std::chrono::seconds(120), [&] {
    size_t least = SIZE_MAX;
    for (const auto& [source, entries] : watch.Entries()) {
      if (source != v1::TAG_WAIT_SOURCE_INFERRED) least = std::min(least, entries);
    }
    return least >= waiters;
  });
}

// The sum of waits against what those who waited measured: it lies between their time without a
// processor and their whole time. A source whose hooks were skipped may lack or lengthen a wait for
// each; one of them must have seen everything.
void ExpectStall(const Sums& sums, const Stall& stall) {
  const double whole = stall.WholeNs();
  const double off = stall.OffNs();
  absl::PrintF(
      "the readers stood still in %d of %d reads, for %.1f to %.1f ms (%.1f %% apart); "
      "preempted in %d of them\n",
      stall.slept.size(), stall.reads, off / 1e6, whole / 1e6, 100 * (Share(whole, off) - 1),
      stall.preempted);
  bool complete = false;
  for (const auto& [source, sum] : sums) {
    const std::string name = v1::TagWaitSource_Name(source);
    // Others wait as well now and then: workers that look for partitions.
    uint64_t everybody = 0;
    uint64_t traced = 0;
    uint64_t waits = 0;
    for (const fb_tag_ended& wait : sum.ended) {
      if (!wait.slept || wait.end_ns == 0) continue;
      everybody += wait.end_ns - wait.begin_ns;
      const auto since = stall.since_ns.find(wait.tid);
      if (since == stall.since_ns.end() || wait.begin_ns < since->second) continue;
      traced += wait.end_ns - wait.begin_ns;
      ++waits;
    }
    EXPECT_EQ(everybody, sum.wait_ns) << name;
    absl::PrintF("  %-10s traced %d waits, %.1f ms: %+.2f %% of the least, %+.2f %% of the most\n",
                 name.substr(16), waits, traced / 1e6, 100 * (Share(traced, off) - 1),
                 100 * (Share(traced, whole) - 1));
    if (source == v1::TAG_WAIT_SOURCE_INFERRED) continue;
    const uint64_t skipped = sum.Missed() + sum.unseen;
    complete |= skipped == 0;
    const double slack = kClocks * whole + static_cast<double>(skipped * sum.max_ns);
    EXPECT_GE(traced, off - slack) << name;
    EXPECT_LE(traced, whole + slack) << name;
    EXPECT_LE(waits, stall.slept.size() + skipped) << name;
  }
  EXPECT_TRUE(complete) << "hooks of every source were skipped";
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

// Readers in processes of their own, which can be killed.
std::string StartDds(const std::string& device, int count) {
  return absl::StrCat("i=0; while [ $i -lt ", count, " ]; do dd if=", device,
                      " of=/dev/null bs=4k count=1000000 iflag=direct 2>/dev/null & "
                      "echo $!; i=$((i+1)); done >/tmp/tagwait-dds");
}
constexpr char kKillDds[] =
    "kill -9 $(cat /tmp/tagwait-dds) 2>/dev/null; "
    "while pidof dd >/dev/null; do sleep 0.1; done";

TEST(Sources, AreLoaded) {
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
    for (const std::string& disk : disks_) WithoutScheduler(disk);
  }
  void TearDown() override { EXPECT_TRUE(!loaded_ || Remove("scsi_debug")); }
  std::string Path(int i) const { return "/dev/" + disks_[i]; }
  bool loaded_ = false;
  std::vector<std::string> disks_;
};

// First of all: later ones leave the hook for the end of waits behind for a minute.
TEST_F(ScsiDebug, NothingRunsWhileTagsAreLeft) {
  Start("ndelay=500000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  Stall stall;
  {
    Readers few(Path(0), 2, 1000);
    few.Join();
    stall = few.Stop();
  }
  auto sums = watch.Collect();
  EXPECT_EQ(stall.reads, 2000u);
  for (const auto& [source, sum] : sums) {
    if (source == v1::TAG_WAIT_SOURCE_INFERRED) continue;
    EXPECT_EQ(sum.runs, 0u) << v1::TagWaitSource_Name(source);
    EXPECT_EQ(sum.all.rows_size(), 0);
  }
  absl::PrintF("%d reads that found a tag: %d program runs\n", stall.reads,
               Exact(sums) == nullptr ? 0 : Exact(sums)->runs);
}

TEST_F(ScsiDebug, SharedHardwareTags) {
  Start("ndelay=40000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  ASSERT_FALSE(watch.empty());
  WarmUp(watch, Path(1));
  ActiveSampler sampler(disks_);
  Stall stall;
  {
    Readers few(Path(0), 2);
    Readers many(Path(1), 10);
    RunUntil({&few, &many}, 120);
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
  ExpectStall(sums, stall);
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
  Start("ndelay=40000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Insert("mq-deadline", "");
  const std::string queue = "/sys/block/" + disks_[0] + "/queue/";
  if (!Write(queue + "scheduler", "mq-deadline")) GTEST_SKIP() << "no mq-deadline here";
  ASSERT_TRUE(Write(queue + "nr_requests", "4"));
  Watch& watch = Watch::Begin();
  WarmUp(watch, Path(0));
  Stall stall;
  {
    Readers readers(Path(0), 12);
    RunUntil({&readers}, 120);
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
  ExpectStall(sums, stall);
  ASSERT_EQ(exact->all.disks_size(), 1);
  EXPECT_EQ(exact->all.disks(0).scheduler(), "mq-deadline");
  EXPECT_EQ(exact->all.disks(0).nr_requests(), 4u);
  PrintSentence(disks_[0], disks_[0], *exact, "scheduler");
}

TEST_F(ScsiDebug, RemovalUnderStarvation) {
  Start("ndelay=20000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  Stall stall;
  {
    Readers staying(Path(0), 8);
    Readers going(Path(1), 8);
    // More than one disk has readers, so both have some that wait.
    ASSERT_TRUE(WaitForWaiters(watch, 9));
    ASSERT_TRUE(Write("/sys/block/" + disks_[1] + "/device/delete", "1"));
    std::this_thread::sleep_for(std::chrono::seconds(2));
    stall.Add(going.Stop());
    stall.Add(staying.Stop());
  }
  auto sums = watch.Collect();
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  // Before 5.16 a disk says it is going only when its queue is frozen already.
  EXPECT_GT(exact->removal + exact->freeze, 0u) << "no wait ended by the removal";
  ExpectNothingLeft(watch);
}

TEST_F(ScsiDebug, KilledWhileWaiting) {
  Start("ndelay=50000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  ASSERT_EQ(Shell(StartDds(Path(0), 12)), 0);
  const bool waiting = WaitForWaiters(watch, 6);
  EXPECT_EQ(Shell(kKillDds), 0);
  EXPECT_TRUE(waiting);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  auto sums = watch.Collect();
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  EXPECT_GE(exact->signal, 1u);
  ExpectNothingLeft(watch);
}

// What debugfs says and what a wait saw, while nothing moves: so many reads are under way on each
// disk when one more begins to wait.
void ExpectHeldAsDebugfsSays(Watch& watch, const std::vector<std::string>& disks) {
  double most = 0;
  for (const auto& [first, waiter] : {std::pair(0, 0), {1, 0}, {2, 1}, {3, 0}, {4, 1}}) {
    bool still = false;
    std::vector<double> told;
    for (int attempt = 0; attempt < 20 && !still; ++attempt) {
      watch.Collect(/*quiet=*/true);
      Pending of_first("/dev/" + disks[0], first);
      Pending of_second("/dev/" + disks[1], 4 - first);
      Readers one("/dev/" + disks[waiter], 1, 1);
      const bool waits = WaitForWaiters(watch, 1);
      told = {ActiveNow(disks[0]), ActiveNow(disks[1])};
      // On a slow machine the reads may be over by now.
      still = waits && of_first.all_under_way() && of_second.all_under_way();
      one.Join();
    }
    ASSERT_TRUE(still) << "nothing ever stood still";
    for (const auto& [source, sum] : watch.Collect(/*quiet=*/true)) {
      const std::string name = v1::TagWaitSource_Name(source);
      for (int holder = 0; holder < 2; ++holder) {
        const auto key = std::pair(DeviceOf(disks[waiter]), DeviceOf(disks[holder]));
        ASSERT_TRUE(sum.held.contains(key)) << name;
        EXPECT_NEAR(sum.held.at(key), told[holder], 1.0) << name << " of " << disks[holder];
        most = std::max(most, std::abs(sum.held.at(key) - told[holder]));
      }
    }
  }
  absl::PrintF("tags held, as traced and as debugfs says, differ by at most %.2f\n", most);
}

TEST_F(ScsiDebug, HeldAsDebugfsSays) {
  Start("ndelay=1000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  WarmUp(watch, Path(1));
  ASSERT_TRUE(Write("/sys/bus/pseudo/drivers/scsi_debug/ndelay", "900000000"));
  {
    Pending one(Path(0), 1);
    // Before 5.16 debugfs does not know what is under way in a pool for all hardware queues.
    if (ActiveNow(disks_[0]) == 0) {
      std::printf("debugfs does not say what is under way here\n");
      return;
    }
  }
  ExpectHeldAsDebugfsSays(watch, disks_);
}

// Starvation for a while, with threads that are killed, and a disk that comes and goes.
TEST_F(ScsiDebug, NothingLeaks) {
  Start("ndelay=20000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  Sums all;
  uint64_t killed = 0;
  uint64_t removed = 0;
  const std::string host = fs::path(fs::canonical("/sys/block/" + disks_[0] + "/device"))
                               .parent_path()
                               .parent_path()
                               .filename();
  const auto end = std::chrono::steady_clock::now() + leak_run;
  {
    Readers staying(Path(0), 8);
    for (int round = 0; round == 0 || std::chrono::steady_clock::now() < end; ++round) {
      // A disk that has just come gets its scheduler a moment later.
      std::vector<std::string> disks;
      ASSERT_TRUE(WaitUntil(std::chrono::seconds(60), [&] {
        disks = WaitForDisks("sd", 2);
        return disks.size() >= 2 && TakeScheduler(disks[1]);
      })) << disks.size();
      ASSERT_EQ(Shell(StartDds("/dev/" + disks[1], 8)), 0);
      ASSERT_TRUE(WaitForWaiters(watch, 9)) << "round " << round << " on " << disks[1];
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const fs::path device = fs::canonical("/sys/block/" + disks[1] + "/device");
      if (round % 2 == 0) {
        ASSERT_TRUE(Write(device / "delete", "1"));
        ++removed;
      }
      EXPECT_EQ(Shell(kKillDds), 0);
      killed += 8;
      if (round % 2 == 0) {
        ASSERT_TRUE(WaitUntil(std::chrono::seconds(60), [&] { return !fs::exists(device); }));
        ASSERT_TRUE(Write("/sys/class/scsi_host/" + host + "/scan", "- - -"));
      }
      for (auto& [source, sum] : watch.Collect(/*quiet=*/true)) {
        Sum& to = all[source];
        to.waits += sum.waits, to.rounds += sum.rounds, to.woke += sum.woke;
        to.wait_ns += sum.wait_ns, to.max_ns = std::max(to.max_ns, sum.max_ns);
        to.signal += sum.signal, to.removal += sum.removal, to.freeze += sum.freeze;
        to.unseen += sum.unseen, to.over_1ms += sum.over_1ms, to.wait.Merge(sum.wait);
        for (const auto& [name, count] : sum.losses) to.losses[name] += count;
      }
    }
  }
  absl::PrintF("%d s of starvation, %d threads killed, %d disks removed:\n", leak_run.count(),
               killed, removed);
  for (const auto& [source, sum] : all) {
    Print(source, sum);
    EXPECT_GT(sum.waits, 8u) << v1::TagWaitSource_Name(source);
    for (const auto& [name, count] : sum.losses) {
      EXPECT_EQ(name == "tagwait_hooks_missed" ? 0 : count, 0u) << name;
    }
  }
  ExpectNothingLeft(watch);
}

// Two disks of one set of four tags, the second one made through configfs.
class NullBlk : public ::testing::Test {
 protected:
  void Start(const std::string& first_ns, const std::string& second_ns) {
    if (!Insert("null_blk", absl::StrCat("nr_devices=1 shared_tags=1 submit_queues=1 "
                                         "hw_queue_depth=4 irqmode=2 gb=1 completion_nsec=",
                                         first_ns))) {
      GTEST_SKIP() << "no null_blk to load here";
    }
    loaded_ = true;
    const bool made = Shell(absl::StrCat("mkdir ", kSecond)) == 0 &&
                      Write(absl::StrCat(kSecond, "completion_nsec"), second_ns) &&
                      Write(absl::StrCat(kSecond, "irqmode"), "2") &&
                      Write(absl::StrCat(kSecond, "size"), "1024") &&
                      Write(absl::StrCat(kSecond, "submit_queues"), "1") &&
                      Write(absl::StrCat(kSecond, "hw_queue_depth"), "4") &&
                      Write(absl::StrCat(kSecond, "blocksize"), "512");
    if (fs::exists(absl::StrCat(kSecond, "shared_tags"))) {
      Write(absl::StrCat(kSecond, "shared_tags"), "1");
    }
    if (!made || !Write(absl::StrCat(kSecond, "power"), "1")) {
      GTEST_SKIP() << "null_blk makes no second disk with this set here";
    }
    disks_ = WaitForDisks("nullb", 2);
    ASSERT_GE(disks_.size(), 2u);
    for (const std::string& disk : disks_) WithoutScheduler(disk);
  }
  void TearDown() override {
    if (!loaded_) return;
    Write(absl::StrCat(kSecond, "power"), "0");
    Shell(absl::StrCat("rmdir ", kSecond));
    EXPECT_TRUE(Remove("null_blk"));
  }
  static constexpr char kSecond[] = "/sys/kernel/config/nullb/nullb9/";
  bool loaded_ = false;
  std::vector<std::string> disks_;
};

TEST_F(NullBlk, SlowAndFastDiskOfOneSet) {
  Start("2000000", "40000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  WarmUp(watch, "/dev/" + disks_[1]);
  ActiveSampler sampler(disks_);
  Stall stall;
  {
    Readers fast("/dev/" + disks_[0], 4);
    Readers slow_readers("/dev/" + disks_[1], 8);
    RunUntil({&fast, &slow_readers}, 120);
    stall.Add(fast.Stop());
    stall.Add(slow_readers.Stop());
  }
  const std::vector<double> active = sampler.Stop();
  auto sums = watch.Collect();
  ExpectSourcesAgree(sums);
  const Sum* exact = Exact(sums);
  ASSERT_NE(exact, nullptr);
  ExpectStall(sums, stall);
  for (int holder = 0; holder < 2; ++holder) {
    const auto key = std::pair(DeviceOf(disks_[0]), DeviceOf(disks_[holder]));
    ASSERT_TRUE(exact->held.contains(key));
    absl::PrintF("when %s waited %s held %.2f tags; debugfs says %.2f\n", disks_[0], disks_[holder],
                 exact->held.at(key), active[holder]);
    EXPECT_NEAR(exact->held.at(key), active[holder], 1.0);
  }
  PrintSentence(disks_[0], disks_[1], *exact, "hardware");
}

TEST_F(NullBlk, HeldByNullBlkAsDebugfsSays) {
  Start("600000000", "600000000");
  if (IsSkipped() || HasFatalFailure()) return;
  Watch& watch = Watch::Begin();
  WarmUp(watch, "/dev/" + disks_[1]);
  ExpectHeldAsDebugfsSays(watch, disks_);
}

// --- With modules of the tests' own, built for the kernel in question ---

// Where a member of a structure of the kernel stands, in bytes; -1 when it does not say.
int64_t OffsetOf(const char* structure, const std::string& member) {
  btf* kernel = btf__parse("/sys/kernel/btf/vmlinux", nullptr);
  int64_t offset = -1;
  const int id =
      kernel == nullptr ? -1 : btf__find_by_name_kind(kernel, structure, BTF_KIND_STRUCT);
  if (id > 0) {
    const btf_type* type = btf__type_by_id(kernel, id);
    for (int i = 0; i < btf_vlen(type); ++i) {
      if (member != btf__name_by_offset(kernel, btf_members(type)[i].name_off)) continue;
      offset = btf_member_bit_offset(type, i) / 8;
    }
  }
  btf__free(kernel);
  return offset;
}

uint64_t Number(const std::string& path) {
  uint64_t value = 0;
  EXPECT_TRUE(absl::SimpleAtoi(Line(path), &value)) << path;
  return value;
}

// A kernel that carries the tracepoint in its first form: queue and hardware queue alone.
TEST_F(ScsiDebug, FirstFormOfTheTracepoint) {
  const int64_t q_at = OffsetOf("blk_mq_alloc_data", "q");
  const int64_t hctx_at = OffsetOf("blk_mq_alloc_data", "hctx");
  ASSERT_GE(q_at, 0);
  ASSERT_GE(hctx_at, 0);
  Start("ndelay=20000000");
  if (IsSkipped() || HasFatalFailure()) return;
  if (!Insert("fb_tag_event", absl::StrCat("q_at=", q_at, " hctx_at=", hctx_at))) {
    GTEST_SKIP() << "no module with the tracepoint for this kernel";
  }
  std::ifstream format("/sys/kernel/tracing/events/fb_tag_event/block_rq_tag_wait/format");
  const std::string fields(std::istreambuf_iterator<char>(format), {});
  for (const char* field : {"dev_t dev;", "u32 hctx_id;", "u32 nr_tags;", "u32 active_requests;"}) {
    EXPECT_TRUE(absl::StrContains(fields, field)) << field << " in: " << fields;
  }
  Watch& watch = Watch::Begin();
  {
    // What the agent takes of itself on such a kernel.
    auto event = Open(v1::TAG_WAIT_SOURCE_UNSPECIFIED);
    ASSERT_NE(event, nullptr);
    ASSERT_EQ(event->tracer().source(), v1::TAG_WAIT_SOURCE_TRACEPOINT);
    {
      Readers readers(Path(0), 12);
      EXPECT_TRUE(WaitUntil(std::chrono::seconds(120), [&] {
        return watch.SeesEnds() && event->tracer().programs().SeesEnds();
      }));
    }
    std::this_thread::sleep_for(kUntilClosed);
    watch.Collect(/*quiet=*/true);
    event->Collect(/*quiet=*/true);
    const std::string fired = "/sys/module/fb_tag_event/parameters/fired";
    const uint64_t fired_before = Number(fired);
    Stall stall;
    {
      Readers few(Path(0), 2);
      Readers many(Path(1), 10);
      RunUntil({&few, &many}, 120);
      stall.Add(few.Stop());
      stall.Add(many.Stop());
    }
    const uint64_t fired_now = Number(fired) - fired_before;
    Sums sums;
    sums[v1::TAG_WAIT_SOURCE_TRACEPOINT] = event->Collect(/*quiet=*/false);
    sums[v1::TAG_WAIT_SOURCE_KPROBE] = watch.Collect()[v1::TAG_WAIT_SOURCE_KPROBE];
    const Sum& sum = sums[v1::TAG_WAIT_SOURCE_TRACEPOINT];
    const Sum& kprobe = sums[v1::TAG_WAIT_SOURCE_KPROBE];
    absl::PrintF("the event fired %d times, %d rounds were seen\n", fired_now, sum.rounds);
    EXPECT_EQ(Number("/sys/module/fb_tag_event/parameters/unknown"), 0u);
    EXPECT_EQ(sum.rounds, fired_now);
    EXPECT_NEAR(sum.waits, kprobe.waits, 0.01 * kprobe.waits);
    EXPECT_EQ(sum.hardware, sum.waits);
    EXPECT_EQ(sum.nr_tags, std::set<uint32_t>{4});
    EXPECT_EQ(sum.named, sum.waits);
    ExpectStall(sums, stall);
    const auto key = std::pair(DeviceOf(disks_[0]), DeviceOf(disks_[1]));
    ASSERT_TRUE(sum.held.contains(key));
    EXPECT_NEAR(sum.held.at(key), kprobe.held.at(key), 1.0);
  }
  EXPECT_TRUE(Remove("fb_tag_event"));
}

// A driver whose reserved tags run dry.
TEST(Reserved, ReservedTags) {
  if (!Insert("fb_reserved", "tags=8 reserved=2 threads=6 hold_us=20000")) {
    GTEST_SKIP() << "no module with such a disk for this kernel";
  }
  {
    const std::string module = "/sys/module/fb_reserved/parameters/";
    WithoutScheduler("fbreserved");
    Watch& watch = Watch::Begin();
    ASSERT_TRUE(Write(module + "run", "1"));
    EXPECT_TRUE(WaitUntil(std::chrono::seconds(120), [&] { return watch.SeesEnds(); }));
    ASSERT_TRUE(Write(module + "run", "0"));
    std::this_thread::sleep_for(kUntilClosed);
    watch.Collect(/*quiet=*/true);
    const uint64_t whole_before = Number(module + "whole_ns");
    const uint64_t asleep_before = Number(module + "asleep_ns");
    const uint64_t taken_before = Number(module + "taken");
    ASSERT_TRUE(Write(module + "run", "1"));
    EXPECT_TRUE(WaitUntil(std::chrono::seconds(120),
                          [&] { return Number(module + "taken") > taken_before + 300; }));
    ASSERT_TRUE(Write(module + "run", "0"));
    const double whole = Number(module + "whole_ns") - whole_before;
    const double asleep = Number(module + "asleep_ns") - asleep_before;
    auto sums = watch.Collect();
    ExpectSourcesAgree(sums);
    const Sum* exact = Exact(sums);
    ASSERT_NE(exact, nullptr);
    EXPECT_GT(exact->waits, 50u);
    EXPECT_EQ(exact->reserved, exact->waits);
    EXPECT_EQ(exact->hardware, exact->waits);
    EXPECT_EQ(exact->nr_tags, std::set<uint32_t>{2});
    absl::PrintF(
        "the driver's threads measured %.1f ms for %d tags, %.1f ms of it asleep; traced "
        "%.1f ms: %+.2f %% of the whole\n",
        whole / 1e6, Number(module + "taken") - taken_before, asleep / 1e6, exact->wait_ns / 1e6,
        100 * (Share(exact->wait_ns, whole) - 1));
    EXPECT_LE(exact->wait_ns, (1 + kClocks) * whole);
    EXPECT_GE(exact->wait_ns, 0.98 * asleep);
    const uint32_t disk = DeviceOf("fbreserved");
    ASSERT_TRUE(exact->held.contains({disk, disk}));
    EXPECT_NEAR(exact->held.at({disk, disk}), 2, 0.5);
    ExpectNothingLeft(watch);
    PrintSentence("fbreserved", "fbreserved", *exact, "reserved");
  }
  EXPECT_TRUE(Remove("fb_reserved"));
}

}  // namespace
}  // namespace fleetblame::tagwait_test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    constexpr absl::string_view kMinutes = "--minutes=";
    absl::string_view argument = argv[i];
    int minutes = 0;
    if (!absl::ConsumePrefix(&argument, kMinutes) || !absl::SimpleAtoi(argument, &minutes) ||
        minutes < 1) {
      std::fprintf(stderr, "usage: tagwait_test [--minutes=N] [--gtest_...]\n");
      return 2;
    }
    fleetblame::tagwait_test::leak_run = std::chrono::minutes(minutes);
  }
  mount("debugfs", "/sys/kernel/debug", "debugfs", 0, nullptr);
  mount("configfs", "/sys/kernel/config", "configfs", 0, nullptr);
  return RUN_ALL_TESTS();
}
