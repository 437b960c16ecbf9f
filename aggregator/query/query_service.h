// SPDX-License-Identifier: Apache-2.0
//
// The gRPC service fleetblame.v1.Query over a store and the hub of live traces.
//
// It uses gRPC's callback interface and does its work on threads of its own: neither the streams of
// agents nor other calls wait for a query. So many queries run at once, so many wait, and the next
// is refused (QueryOptions).
//
// Threading: the service may be registered with any server. The server must be shut down and gone
// before the service is destroyed; store and hub must outlive it.
// Errors reach clients as gRPC statuses with a sentence that says what to do: INVALID_ARGUMENT,
// NOT_FOUND, RESOURCE_EXHAUSTED (budget, time, too many queries), FAILED_PRECONDITION (a trace of
// hosts that are not connected), CANCELLED, and what the store reports.
#ifndef AGGREGATOR_QUERY_QUERY_SERVICE_H_
#define AGGREGATOR_QUERY_QUERY_SERVICE_H_

#include <memory>

#include "aggregator/query/query_options.h"
#include "aggregator/store/store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace fleetblame::aggregator {

// `hub` may be null: nothing is connected then and traces are refused.
std::unique_ptr<grpc::Service> CreateQueryService(Store* store, TraceHub* hub,
                                                  const QueryOptions& options);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_QUERY_SERVICE_H_
