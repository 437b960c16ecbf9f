// SPDX-License-Identifier: Apache-2.0
//
// Reads the rows of some hosts and a range, in parallel where the store allows it, within the
// budget of the query. What becomes of the rows is up to the workers: each of them is used by one
// thread at a time and sees some of the blocks; the caller puts their results together afterwards.
//
// Three ways lead to the rows; PlanScan chooses:
//   hosts    host by host: always right, costs the most over a large fleet
//   intents  only rows of given intents
//   fleet    the sums over all hosts, when nobody asks which host or file
//
// Threading: Scan may be called from any thread and blocks until the scan is over.
// Errors: those of the query's context (budget, time, client gone) and of the store.
#ifndef AGGREGATOR_QUERY_SCAN_H_
#define AGGREGATOR_QUERY_SCAN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/query/grouping.h"
#include "aggregator/query/host_set.h"
#include "aggregator/query/query_context.h"
#include "aggregator/query/row_filter.h"
#include "aggregator/query/task_pool.h"
#include "aggregator/query/time_range.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

struct ScanPlan {
  enum class Source { kHosts, kIntents, kFleet };
  Source source = Source::kHosts;
  std::vector<IntentNumber> intents;   // for kIntents, increasing
  std::vector<HostNumber> only_hosts;  // for kHosts: just these, increasing; empty = all chosen
  ScanRange range;
};

// Up to so many hosts, reading everything of them is cheaper than finding an intent in the fleet.
inline constexpr size_t kIntentScanMinHosts = 8;

// About how many blocks cover a range of one host.
uint64_t BlocksOfHost(const ResolvedRange& range);

// The fleet's sums are read where that is possible and the blocks of all hosts would be more than
// `max_host_blocks`: they are much fewer, but do not tell hosts apart.
ScanPlan PlanScan(const Grouping& grouping, const RowFilter& filter, const HostSet& hosts,
                  const ResolvedRange& range, uint64_t max_host_blocks);

// What a scan saw, whatever its workers made of it.
struct ScanFacts {
  uint64_t blocks = 0;
  // Of all blocks; start > end when there were none.
  uint64_t start_unix_ns = UINT64_MAX;
  uint64_t end_unix_ns = 0;
  // The finest block that took part and the longest raw window; 0 = none.
  uint64_t finest_ns = 0;
  uint64_t longest_raw_ns = 0;
  uint32_t hosts_with_data = 0;

  void See(const ScannedBlock& block);
  void Merge(const ScanFacts& other);
};

class BlockWorker {
 public:
  virtual ~BlockWorker() = default;
  // Blocks of hosts that were not chosen do not come here. False ends the scan early, for all
  // workers, without an error (the context may have failed).
  virtual bool OnBlock(const ScannedBlock& block) = 0;
};

struct ScanEnv {
  const ReadView* view = nullptr;
  const HostSet* hosts = nullptr;
  QueryContext* context = nullptr;
  TaskPool* helpers = nullptr;  // may be null
};

// `workers` are as many as may run at once (at least one); more than helpers + 1 are idle.
absl::StatusOr<ScanFacts> Scan(const ScanEnv& env, const ScanPlan& plan,
                               const std::vector<BlockWorker*>& workers);

// Workers that Scan can make use of.
int ScanWorkers(const TaskPool* helpers);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_SCAN_H_
