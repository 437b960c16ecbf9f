// SPDX-License-Identifier: Apache-2.0
//
// Sums rows by group and keeps the largest: what Top answers with, and the first half of Series and
// GetIntent.
//
// Histograms of very many groups would not fit, and adding them up is half of the work. Once there
// are more than kLeanGroups of them, the scan goes on without histograms, and those of the groups
// that made it into the answer are read in a second pass. When few of many hosts will be in the
// answer, the second pass reads those hosts only, and the first is lean from its beginning.
//
// Threading: RunGroups may be called from any thread and blocks. Errors: those of Scan, and
// RESOURCE_EXHAUSTED for more groups than the budget allows.
#ifndef AGGREGATOR_QUERY_GROUP_SCAN_H_
#define AGGREGATOR_QUERY_GROUP_SCAN_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "aggregator/query/aggregate.h"
#include "aggregator/query/grouping.h"
#include "aggregator/query/row_filter.h"
#include "aggregator/query/scan.h"
#include "common/saturating.h"

namespace fleetblame::aggregator {

inline constexpr size_t kLeanGroups = 20'000;

// Sums over every row of an answer, by confidence too.
struct Totals {
  Sums sums;
  std::array<uint64_t, v1::Confidence_ARRAYSIZE> bytes_by_confidence{};
  v1::Layer layer = v1::LAYER_TOP;
  bool stacked_devices = false;

  // Which rows they are that were added.
  void Note(const RowFilter::Tester& tester) {
    layer = tester.layer();
    stacked_devices |= tester.stacked_devices();
  }
  void Add(const BlockRow& row) {
    sums.Add(row);
    Grow(&bytes_by_confidence[static_cast<size_t>(row.confidence)], row.bytes);
  }
  void Merge(const Totals& other);
};

struct Group {
  Aggregate total;
  uint32_t hosts = 0;  // distinct; 0 when the fleet's sums were read
  HostNumber last_host = 0;
};

class GroupTable {
 public:
  // `hosts_in_order`: blocks come host by host, so that counting hosts needs no set.
  explicit GroupTable(bool hosts_in_order = true) : hosts_in_order_(hosts_in_order) {}

  // False when `context` allows no further group.
  bool Add(const GroupKey& key, HostNumber host, const BlockRow& row,
           const RowHistograms* histograms, QueryContext* context);
  // Adds what a worker for other hosts has gathered.
  void Merge(GroupTable&& other);
  void DropHistograms();

  size_t size() const { return groups_.size(); }
  const absl::flat_hash_map<GroupKey, uint32_t>& index() const { return index_; }
  const Group& group(uint32_t i) const { return groups_[i]; }

 private:
  void CountHost(uint32_t index, HostNumber host);

  bool hosts_in_order_;
  absl::flat_hash_map<GroupKey, uint32_t> index_;
  std::vector<Group> groups_;
  absl::flat_hash_set<uint64_t> seen_;  // group << 32 | host, when not in order
};

struct RankedGroup {
  GroupKey key;
  Group group;
};

struct Ranking {
  std::vector<RankedGroup> top;  // largest first
  uint64_t omitted_groups = 0;
  Sums omitted;
};

// The `limit` largest groups; equal ones in the order of their keys.
Ranking Rank(const GroupTable& table, const Grouping& grouping, const Names& names,
             v1::OrderBy order, size_t limit);

struct GroupQuery {
  const Grouping* grouping = nullptr;
  const RowFilter* filter = nullptr;
  ScanPlan plan;
  v1::OrderBy order = v1::ORDER_BY_BYTES;
  size_t limit = 0;
  bool histograms = true;
  size_t lean_groups = kLeanGroups;
};

struct GroupResult {
  Ranking ranking;
  Totals totals;
  ScanFacts facts;
};

absl::StatusOr<GroupResult> RunGroups(const ScanEnv& env, Names* names, const GroupQuery& query);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_GROUP_SCAN_H_
