// SPDX-License-Identifier: Apache-2.0
//
// Query.Series: one line over time for each of the largest groups. A first pass over the coarsest
// blocks finds out which groups those are, a second one over blocks that fit into the steps fills
// their points.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/query/handlers.h"
#include "aggregator/query/series_steps.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 10;
// Lines times steps.
constexpr uint64_t kMaxCells = 1'000'000;

struct Cell {
  Sums sums;
  uint32_t hosts = 0;
  HostNumber last_host = 0;
};

using Lines = absl::flat_hash_map<GroupKey, size_t>;

class SeriesWorker : public BlockWorker {
 public:
  SeriesWorker(const Grouping* grouping, const RowFilter* filter, const Lines* lines,
               const SeriesSteps* steps, bool hosts_in_order, Names* names)
      : lines_(lines),
        steps_(steps),
        hosts_in_order_(hosts_in_order),
        tester_(filter, names),
        keys_(grouping, names),
        cells_(lines->size() * steps->count),
        totals_by_line_(lines->size()),
        seen_(steps->count) {}

  bool OnBlock(const ScannedBlock& block) override {
    const size_t step = steps_->StepOf(block.end_unix_ns - 1);
    if (step == steps_->count) return true;
    seen_[step] = true;
    RowBlockReader reader(*block.rows);
    while (reader.Next(&row_, false)) {
      if (!tester_.Passes(row_)) continue;
      totals_.Add(row_);
      auto line = lines_->find(keys_.Make(block.host, row_));
      if (line == lines_->end()) continue;
      const RowHistograms histograms(reader);
      totals_by_line_[line->second].total.Add(row_, &histograms);
      const size_t at = line->second * steps_->count + step;
      cells_[at].sums.Add(row_);
      CountHost(line->second, at, block.host);
    }
    totals_.Note(tester_);
    return true;
  }

  void MergeFrom(const SeriesWorker& other) {
    totals_.Merge(other.totals_);
    for (size_t i = 0; i < cells_.size(); ++i) {
      cells_[i].sums.Merge(other.cells_[i].sums);
      cells_[i].hosts += other.cells_[i].hosts;
    }
    for (size_t i = 0; i < totals_by_line_.size(); ++i) {
      totals_by_line_[i].total.Merge(other.totals_by_line_[i].total);
      totals_by_line_[i].hosts += other.totals_by_line_[i].hosts;
    }
    for (size_t i = 0; i < seen_.size(); ++i) seen_[i] = seen_[i] || other.seen_[i];
  }

  const Totals& totals() const { return totals_; }
  const Cell& cell(size_t line, size_t step) const { return cells_[line * steps_->count + step]; }
  const Group& line_total(size_t line) const { return totals_by_line_[line]; }
  const std::vector<bool>& seen() const { return seen_; }

 private:
  void CountHost(size_t line, size_t at, HostNumber host) {
    if (host == 0) return;
    Cell& cell = cells_[at];
    Group& total = totals_by_line_[line];
    if (hosts_in_order_) {
      cell.hosts += cell.last_host != host;
      total.hosts += total.last_host != host;
    } else {
      cell.hosts += in_cell_.insert({at, host}).second;
      total.hosts += in_line_.insert({line, host}).second;
    }
    cell.last_host = host;
    total.last_host = host;
  }

  const Lines* lines_;
  const SeriesSteps* steps_;
  const bool hosts_in_order_;
  RowFilter::Tester tester_;
  KeyMaker keys_;
  std::vector<Cell> cells_;
  std::vector<Group> totals_by_line_;
  std::vector<bool> seen_;
  Totals totals_;
  absl::flat_hash_set<std::pair<size_t, HostNumber>> in_cell_;
  absl::flat_hash_set<std::pair<size_t, HostNumber>> in_line_;
  BlockRow row_;
};

// Notes in which steps there are blocks; for scans that see only some intents.
class PresenceWorker : public BlockWorker {
 public:
  explicit PresenceWorker(const SeriesSteps* steps) : steps_(steps), seen_(steps->count) {}
  bool OnBlock(const ScannedBlock& block) override {
    const size_t step = steps_->StepOf(block.end_unix_ns - 1);
    if (step < steps_->count) seen_[step] = true;
    return true;
  }
  const std::vector<bool>& seen() const { return seen_; }

 private:
  const SeriesSteps* steps_;
  std::vector<bool> seen_;
};

ScanPlan SecondPlan(const Grouping& grouping, const RowFilter& filter, const HostSet& hosts,
                    const ResolvedRange& range, uint64_t max_host_blocks, Level coarsest) {
  ScanPlan plan = PlanScan(grouping, filter, hosts, range, max_host_blocks);
  // Which steps have data at all must be known of the chosen hosts: the sums of the fleet tell it
  // of all hosts, the blocks of an intent of none.
  if (plan.source == ScanPlan::Source::kIntents && !hosts.everything()) {
    plan.source = ScanPlan::Source::kHosts;
  }
  plan.range.coarsest = coarsest;
  return plan;
}

absl::StatusOr<std::vector<bool>> FindPresence(const ScanEnv& env, const SeriesSteps& steps,
                                               const ScanPlan& plan) {
  ScanPlan fleet;
  fleet.source = ScanPlan::Source::kFleet;
  fleet.range = plan.range;
  fleet.range.histograms = false;
  PresenceWorker presence(&steps);
  absl::StatusOr<ScanFacts> facts = Scan(env, fleet, {&presence});
  if (!facts.ok()) return facts.status();
  return presence.seen();
}

absl::StatusOr<std::vector<bool>> FindIncomplete(const QueryFrame& frame, const SeriesSteps& steps,
                                                 const std::vector<bool>& seen,
                                                 uint64_t now_unix_ns) {
  std::vector<bool> incomplete(steps.count);
  for (size_t i = 0; i < steps.count; ++i) {
    const uint64_t end = steps.first_unix_ns + (i + 1) * steps.step_ns;
    incomplete[i] = !seen[i] || end > now_unix_ns;
  }
  ScanRange range;
  range.start_unix_ns = steps.first_unix_ns;
  range.end_unix_ns = steps.end_unix_ns();
  auto gaps = frame.env().view->Gaps(frame.hosts().numbers(), range);
  if (!gaps.ok()) return gaps.status();
  for (const StoredGap& g : *gaps) {
    uint64_t start = std::max(g.gap.start_unix_ns(), range.start_unix_ns);
    uint64_t end = std::min(g.gap.end_unix_ns(), range.end_unix_ns);
    for (uint64_t t = start; t < end; t = (t / steps.step_ns + 1) * steps.step_ns) {
      incomplete[steps.StepOf(t)] = true;
    }
  }
  return incomplete;
}

// Old data may be kept in longer blocks than fit into the steps.
absl::Status WarnOfCoarserData(const QueryFrame& frame, const SeriesSteps& steps,
                               const std::vector<bool>& seen, v1::Summary* summary) {
  size_t first_seen = 0;
  while (first_seen < steps.count && !seen[first_seen]) ++first_seen;
  if (first_seen == 0 || steps.coarsest == Level::k1d) return absl::OkStatus();
  ScanRange range;
  range.start_unix_ns = steps.first_unix_ns;
  range.end_unix_ns = steps.first_unix_ns + first_seen * steps.step_ns;
  range.histograms = false;
  uint64_t coarser_ns = 0;
  absl::Status status =
      frame.env().view->ScanHosts(frame.hosts().numbers(), range, [&](const ScannedBlock& block) {
        if (!frame.env().context->Charge(1, 0)) return false;
        if (block.level <= steps.coarsest) return true;
        coarser_ns = block.end_unix_ns - block.start_unix_ns;
        return false;
      });
  if (!status.ok()) return status;
  if (coarser_ns > 0) {
    summary->add_warnings(absl::StrCat("The oldest data of this range is kept only in steps of ",
                                       coarser_ns / kSecondNs,
                                       " s or more; ask for a longer step to see it."));
  }
  return frame.env().context->status();
}

void StoreSums(const Cell& cell, v1::Metrics* out) {
  cell.sums.Store(out);
  out->set_hosts(cell.hosts);
}

}  // namespace

absl::Status Series(QueryRun& run, const v1::SeriesRequest& request, v1::SeriesResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  absl::StatusOr<v1::OrderBy> order = ResolveOrder(request.order_by());
  if (!order.ok()) return order.status();
  if (absl::Status s = CheckSide(request.side()); !s.ok()) return s;
  absl::StatusOr<Grouping> grouping = Grouping::Make(request.by(), request.side());
  if (!grouping.ok()) return grouping.status();
  auto made = QueryFrame::Make(run, request.selector(), request.range());
  if (!made.ok()) return made.status();
  QueryFrame& frame = **made;
  absl::StatusOr<RowFilter> filter =
      RowFilter::Compile(request.filter(), request.side(), *run.view, frame.names());
  if (!filter.ok()) return filter.status();
  absl::StatusOr<SeriesSteps> steps =
      MakeSteps(frame.range(), request.step_ns(), run.options->raw_window_ns);
  if (!steps.ok()) return steps.status();
  if (*limit * steps->count > kMaxCells) {
    return absl::InvalidArgumentError(
        absl::StrCat(*limit, " lines of ", steps->count, " points are too many; at most ",
                     kMaxCells, " points are given: take a lower limit or a longer step"));
  }
  frame.set_range({steps->first_unix_ns, steps->end_unix_ns()});

  GroupQuery first;
  first.grouping = &*grouping;
  first.filter = &*filter;
  first.plan =
      PlanScan(*grouping, *filter, frame.hosts(), frame.range(), run.options->max_host_blocks);
  first.order = *order;
  first.limit = *limit;
  first.histograms = false;
  Ranking ranking;
  if (grouping->by().empty()) {
    ranking.top.emplace_back();
  } else {
    absl::StatusOr<GroupResult> result = RunGroups(frame.env(), frame.names(), first);
    if (!result.ok()) return result.status();
    ranking = std::move(result->ranking);
  }
  Lines lines;
  for (size_t i = 0; i < ranking.top.size(); ++i) lines.emplace(ranking.top[i].key, i);

  ScanPlan plan = SecondPlan(*grouping, *filter, frame.hosts(), frame.range(),
                             run.options->max_host_blocks, steps->coarsest);
  std::vector<std::unique_ptr<SeriesWorker>> workers;
  std::vector<BlockWorker*> pointers;
  for (int i = 0; i < ScanWorkers(run.helpers); ++i) {
    workers.push_back(std::make_unique<SeriesWorker>(&*grouping, &*filter, &lines, &*steps,
                                                     plan.source == ScanPlan::Source::kHosts,
                                                     frame.names()));
    pointers.push_back(workers.back().get());
  }
  absl::StatusOr<ScanFacts> facts = Scan(frame.env(), plan, pointers);
  if (!facts.ok()) return facts.status();
  SeriesWorker& all = *workers[0];
  for (size_t i = 1; i < workers.size(); ++i) all.MergeFrom(*workers[i]);
  std::vector<bool> seen = all.seen();
  if (plan.source == ScanPlan::Source::kIntents) {
    absl::StatusOr<std::vector<bool>> presence = FindPresence(frame.env(), *steps, plan);
    if (!presence.ok()) return presence.status();
    seen = *std::move(presence);
  }

  response->set_step_ns(steps->step_ns);
  response->set_first_unix_ns(steps->first_unix_ns);
  for (size_t i = 0; i < ranking.top.size(); ++i) {
    if (!run.context->KeepGoing()) return run.context->status();
    // Nothing of it lies in a step: the rows that brought it here belong before or after.
    if (all.line_total(i).total.sums.ios == 0 && all.line_total(i).total.sums.bytes == 0) continue;
    v1::SeriesResponse::Line* line = response->add_lines();
    auto key = grouping->Describe(ranking.top[i].key, frame.hosts(), *run.view, frame.names());
    if (!key.ok()) return key.status();
    for (v1::DimensionValue& value : *key) *line->add_key() = std::move(value);
    for (size_t step = 0; step < steps->count; ++step) {
      StoreSums(all.cell(i, step), line->add_points());
    }
    all.line_total(i).total.Store(line->mutable_total());
    line->mutable_total()->set_hosts(all.line_total(i).hosts);
  }
  response->set_omitted_groups(ranking.omitted_groups);
  absl::StatusOr<std::vector<bool>> incomplete =
      FindIncomplete(frame, *steps, seen, run.now_unix_ns);
  if (!incomplete.ok()) return incomplete.status();
  for (size_t i = 0; i < incomplete->size(); ++i) {
    if ((*incomplete)[i]) response->add_incomplete_steps(static_cast<uint32_t>(i));
  }
  v1::Summary* summary = response->mutable_summary();
  if (absl::Status s = frame.Summarize(*facts, all.totals(), summary); !s.ok()) return s;
  if (facts->longest_raw_ns > steps->step_ns) {
    summary->add_warnings(absl::StrCat("Some windows are ", facts->longest_raw_ns / kSecondNs,
                                       " s long, longer than a step; each counts into the step in "
                                       "which it ended."));
  }
  return WarnOfCoarserData(frame, *steps, seen, summary);
}

}  // namespace fleetblame::aggregator
