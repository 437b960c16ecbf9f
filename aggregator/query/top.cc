// SPDX-License-Identifier: Apache-2.0
//
// Query.Top: totals over a range, grouped, largest first.
#include "aggregator/query/group_scan.h"
#include "aggregator/query/handlers.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 20;

}  // namespace

absl::Status Top(QueryRun& run, const v1::TopRequest& request, v1::TopResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  absl::StatusOr<v1::OrderBy> order = ResolveOrder(request.order_by());
  if (!order.ok()) return order.status();
  if (absl::Status s = CheckSide(request.side()); !s.ok()) return s;
  absl::StatusOr<Grouping> grouping = Grouping::Make(request.by(), request.side());
  if (!grouping.ok()) return grouping.status();
  auto frame = QueryFrame::Make(run, request.selector(), request.range());
  if (!frame.ok()) return frame.status();
  absl::StatusOr<RowFilter> filter =
      RowFilter::Compile(request.filter(), request.side(), *run.view, (*frame)->names());
  if (!filter.ok()) return filter.status();

  GroupQuery query;
  query.grouping = &*grouping;
  query.filter = &*filter;
  query.plan = PlanScan(*grouping, *filter, (*frame)->hosts(), (*frame)->range(),
                        run.options->max_host_blocks);
  query.order = *order;
  query.limit = *limit;
  absl::StatusOr<GroupResult> result = RunGroups((*frame)->env(), (*frame)->names(), query);
  if (!result.ok()) return result.status();

  absl::Status stored =
      StoreRanking(result->ranking, *grouping, frame->get(), response->mutable_rows());
  if (!stored.ok()) return stored;
  response->set_omitted_groups(result->ranking.omitted_groups);
  result->ranking.omitted.Store(response->mutable_omitted());
  return (*frame)->Summarize(result->facts, result->totals, response->mutable_summary());
}

}  // namespace fleetblame::aggregator
