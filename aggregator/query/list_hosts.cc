// SPDX-License-Identifier: Apache-2.0
//
// Query.ListHosts: what is known of each host, by name.
#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/handlers.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 1000;

void StoreHost(const HostRecord& host, const Sums* sums, bool connected, v1::Host* out) {
  out->set_host_id(host.host_id);
  out->set_hostname(host.hostname);
  out->mutable_labels()->insert(host.labels.begin(), host.labels.end());
  out->set_kernel_release(host.kernel_release);
  out->set_agent_version(host.agent_version);
  out->set_tracer(host.tracer);
  out->set_first_seen_unix_ns(host.first_seen_unix_ns);
  out->set_last_seen_unix_ns(host.last_seen_unix_ns);
  out->set_connected(connected);
  out->set_clock_skew_ns(host.clock_skew_ns);
  if (sums == nullptr) return;
  out->set_read_bytes(sums->read_bytes);
  out->set_written_bytes(sums->written_bytes);
}

}  // namespace

absl::Status ListHosts(QueryRun& run, const v1::ListHostsRequest& request,
                       v1::ListHostsResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  auto frame = QueryFrame::Make(run, request.selector(), request.range());
  if (!frame.ok()) return frame.status();

  const Grouping grouping({v1::DIMENSION_HOST}, v1::SIDE_DIRTIER);
  const RowFilter filter;
  GroupQuery query;
  query.grouping = &grouping;
  query.filter = &filter;
  query.plan = PlanScan(grouping, filter, (*frame)->hosts(), (*frame)->range(),
                        run.options->max_host_blocks);
  query.limit = std::numeric_limits<size_t>::max();
  query.histograms = false;
  absl::StatusOr<GroupResult> result = RunGroups((*frame)->env(), (*frame)->names(), query);
  if (!result.ok()) return result.status();

  absl::flat_hash_map<HostNumber, const Sums*> sums;
  for (const RankedGroup& g : result->ranking.top) sums[g.key.parts[0]] = &g.group.total.sums;
  std::vector<const HostRecord*> hosts;
  for (const HostRecord& h : (*frame)->hosts().hosts()) hosts.push_back(&h);
  std::sort(hosts.begin(), hosts.end(), [](const HostRecord* a, const HostRecord* b) {
    return std::tie(NameOf(*a), a->host_id) < std::tie(NameOf(*b), b->host_id);
  });
  for (const HostRecord* host : hosts) {
    if (static_cast<size_t>(response->hosts_size()) == *limit) break;
    auto at = sums.find(host->number);
    StoreHost(*host, at == sums.end() ? nullptr : at->second, run.connected.contains(host->host_id),
              response->add_hosts());
  }
  response->set_omitted(static_cast<uint32_t>(hosts.size()) -
                        static_cast<uint32_t>(response->hosts_size()));
  return (*frame)->Summarize(result->facts, result->totals, response->mutable_summary());
}

}  // namespace fleetblame::aggregator
