// SPDX-License-Identifier: Apache-2.0
//
// Query.SearchIntents: intents whose stack has a frame that fits an expression, and that had a part
// in some IO of the chosen hosts and range, as dirtier or as issuer. Their metrics count each such
// row once.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/query/handlers.h"
#include "re2/re2.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 20;
// More matches than this are looked for in all rows instead of intent by intent.
constexpr size_t kMostIntentsToScan = 200;

// Two dimensions that Grouping does not offer: the intent on either side.
class SearchWorker : public BlockWorker {
 public:
  SearchWorker(const absl::flat_hash_map<IntentNumber, std::vector<uint32_t>>* wanted,
               bool hosts_in_order, Names* names, QueryContext* context)
      : wanted_(wanted), context_(context), tester_(&top_layer_, names), table_(hosts_in_order) {}

  bool OnBlock(const ScannedBlock& block) override {
    RowBlockReader reader(*block.rows);
    while (reader.Next(&row_, false)) {
      const bool dirtier = wanted_->contains(row_.dirtier_intent);
      const bool issuer =
          row_.issuer_intent != row_.dirtier_intent && wanted_->contains(row_.issuer_intent);
      if ((!dirtier && !issuer) || !tester_.Passes(row_)) continue;
      totals_.Add(row_);
      const RowHistograms histograms(reader);
      if (dirtier && !Add(row_.dirtier_intent, block.host, histograms)) return false;
      if (issuer && !Add(row_.issuer_intent, block.host, histograms)) return false;
    }
    totals_.Note(tester_);
    return true;
  }

  GroupTable& table() { return table_; }
  const Totals& totals() const { return totals_; }

 private:
  bool Add(IntentNumber intent, HostNumber host, const RowHistograms& histograms) {
    GroupKey key;
    key.parts[0] = intent;
    return table_.Add(key, host, row_, &histograms, context_);
  }

  const absl::flat_hash_map<IntentNumber, std::vector<uint32_t>>* wanted_;
  QueryContext* context_;
  const RowFilter top_layer_;
  RowFilter::Tester tester_;
  GroupTable table_;
  Totals totals_;
  BlockRow row_;
};

}  // namespace

absl::Status SearchIntents(QueryRun& run, const v1::SearchIntentsRequest& request,
                           v1::SearchIntentsResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  if (request.frame_regex().empty()) {
    return absl::InvalidArgumentError(
        "frame_regex: give a regular expression to search for, such as ^ext4_ or fsync");
  }
  auto regex = CompileRegex(request.frame_regex(), "frame_regex");
  if (!regex.ok()) return regex.status();
  auto frame = QueryFrame::Make(run, request.selector(), request.range());
  if (!frame.ok()) return frame.status();

  // Intents that fit, and which of their frames.
  absl::flat_hash_map<IntentNumber, std::vector<uint32_t>> wanted;
  absl::Status walked = run.view->ForEachIntent([&](IntentNumber n, const v1::Intent& intent) {
    if (!run.context->KeepGoing()) return false;
    for (int i = 0; i < intent.frames_size(); ++i) {
      if (!RE2::PartialMatch(intent.frames(i), **regex)) continue;
      wanted[n].push_back(static_cast<uint32_t>(i));
    }
    return true;
  });
  if (!walked.ok()) return walked;
  if (absl::Status s = run.context->status(); !s.ok()) return s;

  ScanPlan plan;
  plan.range.start_unix_ns = (*frame)->range().start_unix_ns;
  plan.range.end_unix_ns = (*frame)->range().end_unix_ns;
  if ((*frame)->hosts().size() > kIntentScanMinHosts && wanted.size() <= kMostIntentsToScan) {
    plan.source = ScanPlan::Source::kIntents;
    for (const auto& [n, frames] : wanted) plan.intents.push_back(n);
    std::sort(plan.intents.begin(), plan.intents.end());
  }
  std::vector<std::unique_ptr<SearchWorker>> workers;
  std::vector<BlockWorker*> pointers;
  for (int i = 0; i < ScanWorkers(run.helpers); ++i) {
    workers.push_back(std::make_unique<SearchWorker>(
        &wanted, plan.source == ScanPlan::Source::kHosts, (*frame)->names(), run.context));
    pointers.push_back(workers.back().get());
  }
  absl::StatusOr<ScanFacts> facts = Scan((*frame)->env(), plan, pointers);
  if (!facts.ok()) return facts.status();
  Totals totals;
  GroupTable table;
  for (const auto& w : workers) {
    totals.Merge(w->totals());
    table.Merge(std::move(w->table()));
  }

  const Grouping by_intent({v1::DIMENSION_INTENT}, v1::SIDE_DIRTIER);
  Ranking ranking = Rank(table, by_intent, *(*frame)->names(), v1::ORDER_BY_BYTES, *limit);
  for (const RankedGroup& ranked : ranking.top) {
    const IntentNumber number = ranked.key.parts[0];
    v1::SearchIntentsResponse::Match* match = response->add_matches();
    auto described = DescribeIntent(number, *run.view, (*frame)->names());
    if (!described.ok()) return described.status();
    *match->mutable_intent() = *std::move(described);
    for (uint32_t i : wanted[number]) match->add_matching_frames(i);
    ranked.group.total.Store(match->mutable_metrics());
    match->mutable_metrics()->set_hosts(ranked.group.hosts);
  }
  response->set_omitted(ranking.omitted_groups);
  return (*frame)->Summarize(*facts, totals, response->mutable_summary());
}

}  // namespace fleetblame::aggregator
