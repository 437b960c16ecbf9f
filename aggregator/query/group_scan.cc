// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/group_scan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

class GroupWorker : public BlockWorker {
 public:
  GroupWorker(const GroupQuery* query, const ScanEnv* env, Names* names, std::atomic<bool>* lean)
      : query_(query),
        context_(env->context),
        lean_(lean),
        tester_(query->filter, names),
        keys_(query->grouping, names),
        table_(query->plan.source == ScanPlan::Source::kHosts) {}

  bool OnBlock(const ScannedBlock& block) override {
    if (lean_->load(std::memory_order_relaxed) && !dropped_) {
      table_.DropHistograms();
      dropped_ = true;
    }
    const bool histograms = query_->histograms && !dropped_;
    RowBlockReader reader(*block.rows);
    while (reader.Next(&row_, false)) {
      if (!tester_.Passes(row_)) continue;
      totals_.Add(row_);
      const RowHistograms found(reader);
      const RowHistograms* use = histograms ? &found : nullptr;
      if (!table_.Add(keys_.Make(block.host, row_), block.host, row_, use, context_)) return false;
    }
    totals_.Note(tester_);
    if (table_.size() > query_->lean_groups) lean_->store(true, std::memory_order_relaxed);
    return true;
  }

  GroupTable& table() { return table_; }
  const Totals& totals() const { return totals_; }

 private:
  const GroupQuery* query_;
  QueryContext* context_;
  std::atomic<bool>* lean_;
  bool dropped_ = false;
  RowFilter::Tester tester_;
  KeyMaker keys_;
  GroupTable table_;
  Totals totals_;
  BlockRow row_;
};

// The second pass: histograms of groups that are known already.
class HistogramWorker : public BlockWorker {
 public:
  HistogramWorker(const GroupQuery* query, Names* names,
                  const absl::flat_hash_map<GroupKey, size_t>* wanted)
      : tester_(query->filter, names),
        keys_(query->grouping, names),
        wanted_(wanted),
        found_(wanted->size()) {}

  bool OnBlock(const ScannedBlock& block) override {
    RowBlockReader reader(*block.rows);
    while (reader.Next(&row_, false)) {
      if (!tester_.Passes(row_)) continue;
      auto at = wanted_->find(keys_.Make(block.host, row_));
      if (at == wanted_->end()) continue;
      found_[at->second].first.Add(reader.wait_buckets());
      found_[at->second].second.Add(reader.io_buckets());
    }
    return true;
  }

  const std::vector<std::pair<DenseHistogram, DenseHistogram>>& found() const { return found_; }

 private:
  RowFilter::Tester tester_;
  KeyMaker keys_;
  const absl::flat_hash_map<GroupKey, size_t>* wanted_;
  std::vector<std::pair<DenseHistogram, DenseHistogram>> found_;
  BlockRow row_;
};

template <typename Worker>
std::vector<BlockWorker*> Pointers(const std::vector<std::unique_ptr<Worker>>& workers) {
  std::vector<BlockWorker*> out;
  for (const auto& w : workers) out.push_back(w.get());
  return out;
}

// Whether the answer can hold but a small part of the hosts that must be read.
bool FewOfManyHosts(const ScanEnv& env, const GroupQuery& query) {
  constexpr size_t kMany = 4;
  return query.plan.source != ScanPlan::Source::kFleet && query.grouping->Has(v1::DIMENSION_HOST) &&
         env.hosts->size() / kMany > query.limit;
}

absl::Status ReadHistograms(const ScanEnv& env, Names* names, const GroupQuery& query,
                            Ranking* ranking) {
  absl::flat_hash_map<GroupKey, size_t> wanted;
  for (size_t i = 0; i < ranking->top.size(); ++i) wanted.emplace(ranking->top[i].key, i);
  ScanPlan plan = query.plan;
  const std::vector<v1::Dimension>& by = query.grouping->by();
  if (auto host = std::find(by.begin(), by.end(), v1::DIMENSION_HOST);
      host != by.end() && plan.source != ScanPlan::Source::kFleet) {
    plan.source = ScanPlan::Source::kHosts;
    size_t part = static_cast<size_t>(host - by.begin());
    for (const RankedGroup& g : ranking->top) plan.only_hosts.push_back(g.key.parts[part]);
    std::sort(plan.only_hosts.begin(), plan.only_hosts.end());
    plan.only_hosts.erase(std::unique(plan.only_hosts.begin(), plan.only_hosts.end()),
                          plan.only_hosts.end());
  }
  std::vector<std::unique_ptr<HistogramWorker>> workers;
  for (int i = 0; i < ScanWorkers(env.helpers); ++i) {
    workers.push_back(std::make_unique<HistogramWorker>(&query, names, &wanted));
  }
  absl::StatusOr<ScanFacts> facts = Scan(env, plan, Pointers(workers));
  if (!facts.ok()) return facts.status();
  for (size_t i = 0; i < ranking->top.size(); ++i) {
    for (const auto& w : workers) {
      ranking->top[i].group.total.wait.Merge(w->found()[i].first);
      ranking->top[i].group.total.io.Merge(w->found()[i].second);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void Totals::Merge(const Totals& other) {
  sums.Merge(other.sums);
  layer = other.layer;
  stacked_devices |= other.stacked_devices;
  for (size_t i = 0; i < bytes_by_confidence.size(); ++i) {
    Grow(&bytes_by_confidence[i], other.bytes_by_confidence[i]);
  }
}

bool GroupTable::Add(const GroupKey& key, HostNumber host, const BlockRow& row,
                     const RowHistograms* histograms, QueryContext* context) {
  auto [at, inserted] = index_.try_emplace(key, static_cast<uint32_t>(groups_.size()));
  if (inserted) {
    if (!context->ChargeGroup()) {
      index_.erase(at);
      return false;
    }
    groups_.emplace_back();
  }
  Group& group = groups_[at->second];
  group.total.Add(row, histograms);
  if (host != 0 && host != group.last_host) {
    group.last_host = host;
    CountHost(at->second, host);
  }
  return true;
}

void GroupTable::CountHost(uint32_t index, HostNumber host) {
  if (hosts_in_order_ || seen_.insert(uint64_t{index} << 32 | host).second) ++groups_[index].hosts;
}

void GroupTable::Merge(GroupTable&& other) {
  if (groups_.empty()) {
    *this = std::move(other);
    return;
  }
  for (const auto& [key, i] : other.index_) {
    auto [at, inserted] = index_.try_emplace(key, static_cast<uint32_t>(groups_.size()));
    if (inserted) {
      groups_.push_back(std::move(other.groups_[i]));
    } else {
      groups_[at->second].total.Merge(other.groups_[i].total);
      groups_[at->second].hosts += other.groups_[i].hosts;
    }
  }
}

void GroupTable::DropHistograms() {
  for (Group& g : groups_) {
    g.total.wait = DenseHistogram();
    g.total.io = DenseHistogram();
  }
}

Ranking Rank(const GroupTable& table, const Grouping& grouping, const Names& names,
             v1::OrderBy order, size_t limit) {
  struct Entry {
    const GroupKey* key;
    uint32_t group;
  };
  std::vector<Entry> entries;
  entries.reserve(table.size());
  for (const auto& [key, i] : table.index()) entries.push_back({&key, i});
  auto larger = [&](const Entry& a, const Entry& b) {
    const Sums& x = table.group(a.group).total.sums;
    const Sums& y = table.group(b.group).total.sums;
    auto left = std::make_tuple(x.Value(order), x.bytes, x.ios);
    auto right = std::make_tuple(y.Value(order), y.bytes, y.ios);
    if (left != right) return left > right;
    return grouping.Less(*a.key, *b.key, names);
  };
  const size_t kept = std::min(limit, entries.size());
  std::partial_sort(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(kept), entries.end(),
                    larger);
  Ranking ranking;
  for (size_t i = 0; i < kept; ++i) {
    ranking.top.push_back({*entries[i].key, table.group(entries[i].group)});
  }
  ranking.omitted_groups = entries.size() - kept;
  for (size_t i = kept; i < entries.size(); ++i) {
    ranking.omitted.Merge(table.group(entries[i].group).total.sums);
  }
  return ranking;
}

absl::StatusOr<GroupResult> RunGroups(const ScanEnv& env, Names* names, const GroupQuery& query) {
  std::atomic<bool> lean{query.histograms && FewOfManyHosts(env, query)};
  std::vector<std::unique_ptr<GroupWorker>> workers;
  for (int i = 0; i < ScanWorkers(env.helpers); ++i) {
    workers.push_back(std::make_unique<GroupWorker>(&query, &env, names, &lean));
  }
  ScanPlan plan = query.plan;
  plan.range.histograms = query.histograms && !lean.load();
  absl::StatusOr<ScanFacts> facts = Scan(env, plan, Pointers(workers));
  if (!facts.ok()) return facts.status();
  GroupResult result;
  result.facts = *facts;
  GroupTable table;
  for (const auto& w : workers) {
    result.totals.Merge(w->totals());
    table.Merge(std::move(w->table()));
  }
  result.ranking = Rank(table, *query.grouping, *names, query.order, query.limit);
  if (query.histograms && lean.load()) {
    for (RankedGroup& g : result.ranking.top) {
      g.group.total.wait = DenseHistogram();
      g.group.total.io = DenseHistogram();
    }
    if (absl::Status s = ReadHistograms(env, names, query, &result.ranking); !s.ok()) return s;
  }
  return result;
}

}  // namespace fleetblame::aggregator
