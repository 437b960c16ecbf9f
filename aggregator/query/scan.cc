// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/scan.h"

#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_set.h"

namespace fleetblame::aggregator {
namespace {

// Shards are smaller than a fair share, so that a slow one does not keep the others waiting.
constexpr size_t kShardsPerWorker = 8;
constexpr size_t kMinHostsPerShard = 4;

// An estimate of what a decoded block occupies.
uint64_t BlockBytes(const v1::RowBlock& rows) {
  return static_cast<uint64_t>(rows.op_confidence_size()) * 68 +
         static_cast<uint64_t>(rows.wait_bucket_delta_size() + rows.io_bucket_delta_size()) * 12;
}

bool ChargeBlock(QueryContext* context, const ScannedBlock& block) {
  return context->Charge(static_cast<uint64_t>(block.rows->op_confidence_size()),
                         BlockBytes(*block.rows));
}

absl::StatusOr<ScanFacts> ScanByHost(const ScanEnv& env, const ScanPlan& plan,
                                     const std::vector<BlockWorker*>& workers) {
  const std::vector<HostNumber>& numbers =
      plan.only_hosts.empty() ? env.hosts->numbers() : plan.only_hosts;
  const size_t per_shard =
      std::max(kMinHostsPerShard, numbers.size() / (workers.size() * kShardsPerWorker) + 1);
  const size_t shards = (numbers.size() + per_shard - 1) / per_shard;
  std::vector<ScanFacts> facts(workers.size());
  std::atomic<bool> stop{false};
  const bool parallel = workers.size() >= static_cast<size_t>(ScanWorkers(env.helpers));
  ParallelFor(parallel ? env.helpers : nullptr, shards, [&](size_t shard, int worker) {
    if (stop.load(std::memory_order_relaxed)) return;
    size_t begin = shard * per_shard;
    size_t count = std::min(per_shard, numbers.size() - begin);
    std::span<const HostNumber> part(numbers.data() + begin, count);
    ScanFacts& mine = facts[static_cast<size_t>(worker)];
    HostNumber last = 0;
    absl::Status status = env.view->ScanHosts(part, plan.range, [&](const ScannedBlock& block) {
      if (stop.load(std::memory_order_relaxed)) return false;
      if (!ChargeBlock(env.context, block)) return false;
      mine.See(block);
      if (block.host != last) {
        ++mine.hosts_with_data;
        last = block.host;
      }
      if (workers[static_cast<size_t>(worker)]->OnBlock(block)) return true;
      stop.store(true, std::memory_order_relaxed);
      return false;
    });
    if (!status.ok()) env.context->Fail(status);
  });
  if (absl::Status s = env.context->status(); !s.ok()) return s;
  ScanFacts all;
  for (const ScanFacts& f : facts) all.Merge(f);
  return all;
}

// How many hosts have any data at all: the first block of each tells.
uint32_t CountHostsWithData(const ScanEnv& env, const ScanPlan& plan) {
  constexpr size_t kTogether = 32;
  uint32_t count = 0;
  ScanRange range = plan.range;
  range.histograms = false;
  range.one_block_a_host = true;
  std::span<const HostNumber> rest = env.hosts->numbers();
  while (!rest.empty() && env.context->KeepGoing()) {
    std::span<const HostNumber> some = rest.first(std::min(kTogether, rest.size()));
    rest = rest.subspan(some.size());
    absl::Status status = env.view->ScanHosts(some, range, [&count](const ScannedBlock&) {
      ++count;
      return true;
    });
    if (!status.ok()) env.context->Fail(status);
  }
  return count;
}

// Split by hosts: ranges cannot be split without reading a window at the seam twice. Hosts with
// data are counted beside it.
absl::StatusOr<ScanFacts> ScanWhole(const ScanEnv& env, const ScanPlan& plan,
                                    const std::vector<BlockWorker*>& workers) {
  const bool fleet = plan.source == ScanPlan::Source::kFleet;
  const bool parallel = workers.size() >= static_cast<size_t>(ScanWorkers(env.helpers));
  const size_t parts = parallel ? workers.size() : 1;
  std::vector<ScanFacts> facts(parts);
  std::atomic<bool> stop{false};
  uint32_t hosts_with_data = 0;
  ParallelFor(env.helpers, parts + 1, [&](size_t task, int) {
    if (task == parts) {
      hosts_with_data = CountHostsWithData(env, plan);
      return;
    }
    ScanFacts& mine = facts[task];
    auto sink = [&](const ScannedBlock& block) {
      if (stop.load(std::memory_order_relaxed)) return false;
      if (!ChargeBlock(env.context, block)) return false;
      if (!fleet && !env.hosts->Contains(block.host)) return true;
      mine.See(block);
      if (workers[task]->OnBlock(block)) return true;
      stop.store(true, std::memory_order_relaxed);
      return false;
    };
    ScanRange range = plan.range;
    range.part = static_cast<uint32_t>(task);
    range.parts = static_cast<uint32_t>(parts);
    absl::Status status =
        fleet ? env.view->ScanFleet(range, sink) : env.view->ScanIntents(plan.intents, range, sink);
    if (!status.ok()) env.context->Fail(status);
  });
  if (absl::Status s = env.context->status(); !s.ok()) return s;
  ScanFacts all;
  for (const ScanFacts& f : facts) all.Merge(f);
  all.hosts_with_data = hosts_with_data;
  return all;
}

}  // namespace

void ScanFacts::See(const ScannedBlock& block) {
  ++blocks;
  start_unix_ns = std::min(start_unix_ns, block.start_unix_ns);
  end_unix_ns = std::max(end_unix_ns, block.end_unix_ns);
  uint64_t length = block.end_unix_ns - block.start_unix_ns;
  if (finest_ns == 0 || length < finest_ns) finest_ns = length;
  if (block.level == Level::kRaw) longest_raw_ns = std::max(longest_raw_ns, length);
}

void ScanFacts::Merge(const ScanFacts& other) {
  blocks += other.blocks;
  start_unix_ns = std::min(start_unix_ns, other.start_unix_ns);
  end_unix_ns = std::max(end_unix_ns, other.end_unix_ns);
  if (finest_ns == 0 || (other.finest_ns != 0 && other.finest_ns < finest_ns)) {
    finest_ns = other.finest_ns;
  }
  longest_raw_ns = std::max(longest_raw_ns, other.longest_raw_ns);
  hosts_with_data += other.hosts_with_data;
}

// Whole days, and at both ends as many quarters of a day, hours, tens of minutes and so on as there
// are on average.
uint64_t BlocksOfHost(const ResolvedRange& range) {
  const uint64_t ns = range.length_ns();
  return 1 + ns / kDayNs + std::min<uint64_t>(ns / (6 * kHourNs), 4) +
         std::min<uint64_t>(ns / kHourNs, 6) + std::min<uint64_t>(ns / (10 * kMinuteNs), 6) +
         std::min<uint64_t>(ns / kMinuteNs, 10) + std::min<uint64_t>(ns / (10 * kSecondNs), 6);
}

ScanPlan PlanScan(const Grouping& grouping, const RowFilter& filter, const HostSet& hosts,
                  const ResolvedRange& range, uint64_t max_host_blocks) {
  ScanPlan plan;
  plan.range.start_unix_ns = range.start_unix_ns;
  plan.range.end_unix_ns = range.end_unix_ns;
  if (!filter.intents().empty() && hosts.size() > kIntentScanMinHosts) {
    plan.source = ScanPlan::Source::kIntents;
    plan.intents = filter.intents();
  } else if (hosts.everything() && hosts.size() * BlocksOfHost(range) > max_host_blocks &&
             !grouping.Has(v1::DIMENSION_HOST) && !grouping.Has(v1::DIMENSION_FILE) &&
             !filter.uses_files()) {
    plan.source = ScanPlan::Source::kFleet;
  }
  return plan;
}

int ScanWorkers(const TaskPool* helpers) { return helpers == nullptr ? 1 : helpers->threads() + 1; }

absl::StatusOr<ScanFacts> Scan(const ScanEnv& env, const ScanPlan& plan,
                               const std::vector<BlockWorker*>& workers) {
  if (!env.context->KeepGoing()) return env.context->status();
  if (env.hosts->size() == 0) return ScanFacts();
  if (plan.source == ScanPlan::Source::kHosts) return ScanByHost(env, plan, workers);
  return ScanWhole(env, plan, workers);
}

}  // namespace fleetblame::aggregator
