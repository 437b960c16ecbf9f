// SPDX-License-Identifier: Apache-2.0
//
// Query.GetIntent: everything about one intent, from one scan: how much as dirtier and as issuer,
// and as dirtier by host, comm, file and device.
#include <array>
#include <memory>
#include <vector>

#include "aggregator/query/handlers.h"
#include "aggregator/query/intent_lookup.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 20;
constexpr std::array<v1::Dimension, 4> kBreakdowns = {v1::DIMENSION_HOST, v1::DIMENSION_COMM,
                                                      v1::DIMENSION_FILE, v1::DIMENSION_DEVICE};

using Groupings = std::array<Grouping, kBreakdowns.size()>;

class IntentWorker : public BlockWorker {
 public:
  IntentWorker(IntentNumber intent, const Groupings& groupings, bool hosts_in_order, Names* names,
               QueryContext* context)
      : intent_(intent),
        context_(context),
        tester_(&top_layer_, names),
        total_(hosts_in_order),
        issued_(hosts_in_order) {
    for (size_t i = 0; i < groupings.size(); ++i) {
      keys_.emplace_back(&groupings[i], names);
      tables_.emplace_back(hosts_in_order);
    }
  }

  bool OnBlock(const ScannedBlock& block) override {
    RowBlockReader reader(*block.rows);
    while (reader.Next(&row_, false)) {
      const bool dirtier = row_.dirtier_intent == intent_;
      const bool issuer = row_.issuer_intent == intent_;
      if ((!dirtier && !issuer) || !tester_.Passes(row_)) continue;
      totals_.Add(row_);
      const RowHistograms histograms(reader);
      const HostNumber host = block.host;
      if (issuer && !issued_.Add(GroupKey(), host, row_, &histograms, context_)) return false;
      if (!dirtier) continue;
      if (!total_.Add(GroupKey(), host, row_, &histograms, context_)) return false;
      for (size_t i = 0; i < tables_.size(); ++i) {
        if (!tables_[i].Add(keys_[i].Make(host, row_), host, row_, &histograms, context_)) {
          return false;
        }
      }
    }
    totals_.Note(tester_);
    return true;
  }

  void MergeFrom(IntentWorker&& other) {
    totals_.Merge(other.totals_);
    total_.Merge(std::move(other.total_));
    issued_.Merge(std::move(other.issued_));
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i].Merge(std::move(other.tables_[i]));
  }

  const Totals& totals() const { return totals_; }
  const GroupTable& total() const { return total_; }
  const GroupTable& issued() const { return issued_; }
  const GroupTable& table(size_t i) const { return tables_[i]; }

 private:
  IntentNumber intent_;
  QueryContext* context_;
  const RowFilter top_layer_;
  RowFilter::Tester tester_;
  Totals totals_;
  GroupTable total_;
  GroupTable issued_;
  std::vector<KeyMaker> keys_;
  std::vector<GroupTable> tables_;
  BlockRow row_;
};

void StoreOnly(const GroupTable& table, v1::Metrics* out) {
  if (table.size() == 0) return;
  table.group(0).total.Store(out);
  out->set_hosts(table.group(0).hosts);
}

}  // namespace

absl::Status GetIntent(QueryRun& run, const v1::GetIntentRequest& request,
                       v1::GetIntentResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  auto frame = QueryFrame::Make(run, request.selector(), request.range());
  if (!frame.ok()) return frame.status();
  absl::StatusOr<IntentNumber> number = FindIntent(*run.view, request.intent());
  if (!number.ok()) return number.status();

  ScanPlan plan;
  plan.range.start_unix_ns = (*frame)->range().start_unix_ns;
  plan.range.end_unix_ns = (*frame)->range().end_unix_ns;
  if ((*frame)->hosts().size() > kIntentScanMinHosts) {
    plan.source = ScanPlan::Source::kIntents;
    plan.intents = {*number};
  }
  const Groupings groupings = {
      Grouping({kBreakdowns[0]}, v1::SIDE_DIRTIER), Grouping({kBreakdowns[1]}, v1::SIDE_DIRTIER),
      Grouping({kBreakdowns[2]}, v1::SIDE_DIRTIER), Grouping({kBreakdowns[3]}, v1::SIDE_DIRTIER)};
  std::vector<std::unique_ptr<IntentWorker>> workers;
  std::vector<BlockWorker*> pointers;
  for (int i = 0; i < ScanWorkers(run.helpers); ++i) {
    workers.push_back(std::make_unique<IntentWorker>(*number, groupings,
                                                     plan.source == ScanPlan::Source::kHosts,
                                                     (*frame)->names(), run.context));
    pointers.push_back(workers.back().get());
  }
  absl::StatusOr<ScanFacts> facts = Scan((*frame)->env(), plan, pointers);
  if (!facts.ok()) return facts.status();
  IntentWorker& all = *workers[0];
  for (size_t i = 1; i < workers.size(); ++i) all.MergeFrom(std::move(*workers[i]));

  absl::StatusOr<v1::Intent> intent = run.view->Intent(*number);
  if (!intent.ok()) return intent.status();
  absl::StatusOr<std::string> short_id = ShortIntentId(*run.view, IntentHex(*intent));
  if (!short_id.ok()) return short_id.status();
  absl::StatusOr<ReadView::SeenSpan> seen = run.view->IntentSeen(*number);
  if (!seen.ok()) return seen.status();
  *response->mutable_intent() = *std::move(intent);
  response->set_short_id(*std::move(short_id));
  response->set_first_seen_unix_ns(seen->first_unix_ns);
  response->set_last_seen_unix_ns(seen->last_unix_ns);
  StoreOnly(all.total(), response->mutable_as_dirtier());
  StoreOnly(all.issued(), response->mutable_as_issuer());
  google::protobuf::RepeatedPtrField<v1::TopResponse::Row>* const out[] = {
      response->mutable_hosts(), response->mutable_comms(), response->mutable_files(),
      response->mutable_devices()};
  for (size_t i = 0; i < groupings.size(); ++i) {
    Ranking ranking =
        Rank(all.table(i), groupings[i], *(*frame)->names(), v1::ORDER_BY_BYTES, *limit);
    if (absl::Status s = StoreRanking(ranking, groupings[i], frame->get(), out[i]); !s.ok()) {
      return s;
    }
  }
  return (*frame)->Summarize(*facts, all.totals(), response->mutable_summary());
}

}  // namespace fleetblame::aggregator
