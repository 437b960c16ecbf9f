// SPDX-License-Identifier: Apache-2.0
//
// Checks a TraceRequest and turns it into what the hub wants. Pure.
// Errors: INVALID_ARGUMENT, NOT_FOUND when no host matches.
#ifndef AGGREGATOR_QUERY_TRACE_REQUEST_H_
#define AGGREGATOR_QUERY_TRACE_REQUEST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "aggregator/query/host_set.h"
#include "proto/fleetblame/v1/control.pb.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

struct TraceOrder {
  HostSet hosts;
  v1::TraceDirective want;
};

absl::StatusOr<TraceOrder> CheckTraceRequest(const v1::TraceRequest& request, const ReadView& view);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_TRACE_REQUEST_H_
