// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/query_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/query/summary.h"

namespace fleetblame::aggregator {

absl::StatusOr<size_t> ResolveLimit(uint32_t limit, size_t by_default) {
  if (limit > kMaxLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit: ", limit, " is more than the ", kMaxLimit, " that are allowed"));
  }
  return limit == 0 ? by_default : limit;
}

absl::Status CheckSide(v1::Side side) {
  if (v1::Side_IsValid(side)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("side: there is no side ", static_cast<int>(side), "; 1 = dirtier, 2 = issuer"));
}

absl::StatusOr<v1::OrderBy> ResolveOrder(v1::OrderBy order) {
  if (!v1::OrderBy_IsValid(order)) {
    return absl::InvalidArgumentError(
        absl::StrCat("order_by: there is no order ", static_cast<int>(order)));
  }
  return order == v1::ORDER_BY_UNSPECIFIED ? v1::ORDER_BY_BYTES : order;
}

QueryFrame::QueryFrame(const QueryRun& run, HostSet hosts, const ResolvedRange& range)
    : options_(run.options), hosts_(std::move(hosts)), range_(range), names_(run.view, run.cache) {
  env_.view = run.view;
  env_.hosts = &hosts_;
  env_.context = run.context;
  env_.helpers = run.helpers;
}

absl::StatusOr<std::unique_ptr<QueryFrame>> QueryFrame::Make(const QueryRun& run,
                                                             const std::string& selector,
                                                             const v1::TimeRange& range) {
  absl::StatusOr<ResolvedRange> resolved = ResolveRange(range, run.now_unix_ns);
  if (!resolved.ok()) return resolved.status();
  absl::StatusOr<HostSet> hosts = HostSet::Choose(*run.view, selector);
  if (!hosts.ok()) return hosts.status();
  return std::unique_ptr<QueryFrame>(new QueryFrame(run, *std::move(hosts), *resolved));
}

absl::Status QueryFrame::Summarize(const ScanFacts& facts, const Totals& totals,
                                   v1::Summary* out) const {
  SummaryInput in;
  in.range = range_;
  in.facts = &facts;
  in.totals = &totals;
  in.skew_threshold_ns = options_->skew_threshold_ns;
  in.missing_definitions = names_.missing();
  return FillSummary(env_, in, out);
}

absl::Status StoreRanking(const Ranking& ranking, const Grouping& grouping, QueryFrame* frame,
                          google::protobuf::RepeatedPtrField<v1::TopResponse::Row>* out) {
  for (const RankedGroup& ranked : ranking.top) {
    if (!frame->env().context->KeepGoing()) return frame->env().context->status();
    auto key = grouping.Describe(ranked.key, frame->hosts(), *frame->env().view, frame->names());
    if (!key.ok()) return key.status();
    v1::TopResponse::Row* row = out->Add();
    for (v1::DimensionValue& value : *key) *row->add_key() = std::move(value);
    ranked.group.total.Store(row->mutable_metrics());
    row->mutable_metrics()->set_hosts(ranked.group.hosts);
  }
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
