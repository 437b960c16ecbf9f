// SPDX-License-Identifier: Apache-2.0
//
// Query.CompareHosts: one intent over all hosts, those that differ most from the rest first. A
// first scan sums everything of each host (for its share, and to know who has data at all), a
// second one the intent.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/handlers.h"
#include "aggregator/query/intent_lookup.h"
#include "aggregator/query/robust.h"
#include "aggregator/query/shared_labels.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 50;
constexpr double kOutlierZ = 3.5;

struct Compared {
  const HostRecord* host = nullptr;
  Aggregate intent;
  uint64_t host_bytes = 0;
  double rate = 0;
  std::optional<double> z;
};

absl::StatusOr<GroupResult> ByHost(QueryFrame* frame, const RowFilter& filter, v1::Side side,
                                   bool histograms) {
  const Grouping grouping({v1::DIMENSION_HOST}, side);
  GroupQuery query;
  query.grouping = &grouping;
  query.filter = &filter;
  query.plan = PlanScan(grouping, filter, frame->hosts(), frame->range(), 0);
  query.limit = std::numeric_limits<size_t>::max();
  query.histograms = histograms;
  // Every host is in the answer: dropping histograms for a second pass would gain nothing.
  query.lean_groups = std::numeric_limits<size_t>::max();
  return RunGroups(frame->env(), frame->names(), query);
}

void StoreHostRow(const Compared& c, v1::CompareHostsResponse::HostRow* row) {
  row->set_host_id(c.host->host_id);
  row->set_hostname(c.host->hostname);
  row->mutable_labels()->insert(c.host->labels.begin(), c.host->labels.end());
  c.intent.Store(row->mutable_metrics());
  row->mutable_metrics()->set_hosts(c.intent.sums.ios > 0 || c.intent.sums.bytes > 0 ? 1 : 0);
  row->set_bytes_per_second(c.rate);
  if (c.host_bytes > 0) {
    row->set_share_of_host(static_cast<double>(c.intent.sums.bytes) /
                           static_cast<double>(c.host_bytes));
  }
  if (c.z.has_value()) row->set_robust_z(*c.z);
}

}  // namespace

absl::Status CompareHosts(QueryRun& run, const v1::CompareHostsRequest& request,
                          v1::CompareHostsResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  if (absl::Status s = CheckSide(request.side()); !s.ok()) return s;
  auto made = QueryFrame::Make(run, request.selector(), request.range());
  if (!made.ok()) return made.status();
  QueryFrame& frame = **made;
  absl::StatusOr<IntentNumber> number = FindIntent(*run.view, request.intent());
  if (!number.ok()) return number.status();
  v1::Filter one;
  one.add_intents(request.intent());
  absl::StatusOr<RowFilter> filter =
      RowFilter::Compile(one, request.side(), *run.view, frame.names());
  if (!filter.ok()) return filter.status();

  absl::StatusOr<GroupResult> everything = ByHost(&frame, RowFilter(), request.side(), false);
  if (!everything.ok()) return everything.status();
  absl::StatusOr<GroupResult> intent = ByHost(&frame, *filter, request.side(), true);
  if (!intent.ok()) return intent.status();
  v1::Summary* summary = response->mutable_summary();
  absl::Status summarized = frame.Summarize(everything->facts, intent->totals, summary);
  if (!summarized.ok()) return summarized;

  const double seconds =
      static_cast<double>(summary->end_unix_ns() - summary->start_unix_ns()) / 1e9;
  absl::flat_hash_map<HostNumber, const Aggregate*> of_intent;
  for (const RankedGroup& g : intent->ranking.top) of_intent[g.key.parts[0]] = &g.group.total;
  std::vector<Compared> compared;
  std::vector<double> rates;
  for (const RankedGroup& g : everything->ranking.top) {
    Compared c;
    c.host = frame.hosts().Find(g.key.parts[0]);
    if (c.host == nullptr) continue;
    if (auto at = of_intent.find(c.host->number); at != of_intent.end()) c.intent = *at->second;
    c.host_bytes = g.group.total.sums.bytes;
    c.rate = static_cast<double>(c.intent.sums.bytes) / seconds;
    rates.push_back(c.rate);
    compared.push_back(std::move(c));
  }
  const RobustScale scale = MeasureSpread(rates);
  std::vector<const HostRecord*> outliers;
  std::vector<const HostRecord*> others;
  for (Compared& c : compared) {
    c.z = scale.Z(c.rate);
    const bool outlier = c.z.has_value() && std::fabs(*c.z) >= kOutlierZ;
    (outlier ? outliers : others).push_back(c.host);
  }
  std::sort(compared.begin(), compared.end(), [](const Compared& a, const Compared& b) {
    double left = a.z.has_value() ? std::fabs(*a.z) : 0;
    double right = b.z.has_value() ? std::fabs(*b.z) : 0;
    if (left != right) return left > right;
    if (a.rate != b.rate) return a.rate > b.rate;
    return std::tie(NameOf(*a.host), a.host->host_id) < std::tie(NameOf(*b.host), b.host->host_id);
  });

  auto described = DescribeIntent(*number, *run.view, frame.names());
  if (!described.ok()) return described.status();
  *response->mutable_intent() = *std::move(described);
  for (const Compared& c : compared) {
    if (static_cast<size_t>(response->hosts_size()) == *limit) break;
    StoreHostRow(c, response->add_hosts());
  }
  response->set_omitted(compared.size() - static_cast<size_t>(response->hosts_size()));
  response->set_median_bytes_per_second(scale.median);
  response->set_mad_bytes_per_second(scale.mad);
  if (!outliers.empty()) {
    for (auto& label : FindSharedLabels(outliers, others)) {
      *response->add_shared_labels() = std::move(label);
    }
  }
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
