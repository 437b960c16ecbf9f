// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/trace_request.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/query/time_range.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint32_t kDefaultHosts = 10;
constexpr uint32_t kMostHosts = 1000;
constexpr uint64_t kDefaultDurationNs = 60 * kSecondNs;
constexpr uint64_t kMostDurationNs = kHourNs;
constexpr int kMostDevices = 100;

}  // namespace

absl::StatusOr<TraceOrder> CheckTraceRequest(const v1::TraceRequest& request,
                                             const ReadView& view) {
  const uint32_t max_hosts = request.max_hosts() == 0 ? kDefaultHosts : request.max_hosts();
  if (max_hosts > kMostHosts) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_hosts: at most ", kMostHosts, " hosts can be traced at once"));
  }
  if (request.max_duration_ns() > kMostDurationNs) {
    return absl::InvalidArgumentError("max_duration_ns: a trace may last one hour at most");
  }
  if (request.devices_size() > kMostDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("devices: at most ", kMostDevices, " patterns are taken"));
  }
  TraceOrder order;
  for (int operation : request.operations()) {
    if (!v1::Operation_IsValid(operation) || operation == v1::OPERATION_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("operations: there is no operation ", operation));
    }
    order.want.add_operations(static_cast<uint32_t>(operation));
  }
  absl::StatusOr<HostSet> hosts = HostSet::Choose(view, request.selector());
  if (!hosts.ok()) return hosts.status();
  if (hosts->size() == 0) {
    return absl::NotFoundError(
        hosts->known() == 0
            ? std::string("no host has ever connected to this aggregator")
            : absl::StrCat("none of ", hosts->known(), " known hosts matches the selector"));
  }
  if (hosts->size() > max_hosts) {
    return absl::InvalidArgumentError(
        absl::StrCat("the selector matches ", hosts->size(), " hosts, and max_hosts is ", max_hosts,
                     "; select fewer hosts or raise max_hosts (up to ", kMostHosts, ")"));
  }
  order.hosts = *std::move(hosts);
  order.want.set_max_duration_ns(request.max_duration_ns() == 0 ? kDefaultDurationNs
                                                                : request.max_duration_ns());
  order.want.set_max_events_per_second(request.max_events_per_second_per_host());
  *order.want.mutable_devices() = request.devices();
  order.want.set_min_total_ns(request.min_total_ns());
  return order;
}

}  // namespace fleetblame::aggregator
