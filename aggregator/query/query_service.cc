// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/query_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "aggregator/query/definition_cache.h"
#include "aggregator/query/grpc_status.h"
#include "aggregator/query/handlers.h"
#include "aggregator/query/query_metrics.h"
#include "aggregator/query/task_pool.h"
#include "aggregator/query/trace.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/query.grpc.pb.h"

namespace fleetblame::aggregator {
namespace {

// The share of a client's patience that a query may use: the rest carries the answer.
constexpr double kUseOfDeadline = 0.9;

class QueryService final : public v1::Query::CallbackService {
 public:
  QueryService(Store* store, TraceHub* hub, const QueryOptions& options)
      : store_(store),
        hub_(hub),
        options_(options),
        metrics_(options.registry),
        helpers_(options.scan_helpers,
                 static_cast<size_t>(options.max_running * options.scan_helpers) + 1),
        traces_(hub, options.max_traces),
        runners_(std::max(1, options.max_running), options.max_queued) {}

  grpc::ServerUnaryReactor* ListHosts(grpc::CallbackServerContext* context,
                                      const v1::ListHostsRequest* request,
                                      v1::ListHostsResponse* response) override {
    return Unary("ListHosts", context, request, response, &aggregator::ListHosts);
  }
  grpc::ServerUnaryReactor* Top(grpc::CallbackServerContext* context, const v1::TopRequest* request,
                                v1::TopResponse* response) override {
    return Unary("Top", context, request, response, &aggregator::Top);
  }
  grpc::ServerUnaryReactor* GetIntent(grpc::CallbackServerContext* context,
                                      const v1::GetIntentRequest* request,
                                      v1::GetIntentResponse* response) override {
    return Unary("GetIntent", context, request, response, &aggregator::GetIntent);
  }
  grpc::ServerUnaryReactor* SearchIntents(grpc::CallbackServerContext* context,
                                          const v1::SearchIntentsRequest* request,
                                          v1::SearchIntentsResponse* response) override {
    return Unary("SearchIntents", context, request, response, &aggregator::SearchIntents);
  }
  grpc::ServerUnaryReactor* Series(grpc::CallbackServerContext* context,
                                   const v1::SeriesRequest* request,
                                   v1::SeriesResponse* response) override {
    return Unary("Series", context, request, response, &aggregator::Series);
  }
  grpc::ServerUnaryReactor* CompareHosts(grpc::CallbackServerContext* context,
                                         const v1::CompareHostsRequest* request,
                                         v1::CompareHostsResponse* response) override {
    return Unary("CompareHosts", context, request, response, &aggregator::CompareHosts);
  }
  grpc::ServerUnaryReactor* Coverage(grpc::CallbackServerContext* context,
                                     const v1::CoverageRequest* request,
                                     v1::CoverageResponse* response) override {
    return Unary("Coverage", context, request, response, &aggregator::Coverage);
  }
  grpc::ServerUnaryReactor* Tags(grpc::CallbackServerContext* context,
                                 const v1::TagsRequest* request,
                                 v1::TagsResponse* response) override {
    return Unary("Tags", context, request, response, &aggregator::Tags);
  }

  grpc::ServerWriteReactor<v1::TraceResponse>* Trace(grpc::CallbackServerContext* context,
                                                     const v1::TraceRequest* request) override {
    TraceCall* call = nullptr;
    auto* reactor = traces_.NewCall(context, request, &call);
    if (call == nullptr) return reactor;
    if (hub_ == nullptr) {
      TraceService::Refuse(
          call, absl::FailedPreconditionError("no agent can be reached from here for a trace"));
    } else if (!runners_.TrySubmit(
                   [this, call] { TraceService::Begin(call, *store_->NewReadView()); })) {
      TraceService::Refuse(call, TooMany());
    }
    return reactor;
  }

 private:
  absl::Status TooMany() const {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.max_running, " queries are running and ", options_.max_queued,
                     " are waiting; try again in a moment"));
  }

  uint64_t NowNs() const {
    if (options_.now_unix_ns) return options_.now_unix_ns();
    return static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()));
  }

  absl::Time StopAt(const grpc::CallbackServerContext& context) const {
    absl::Time now = absl::Now();
    absl::Time latest = now + options_.max_duration;
    // A client without a deadline shows the end of time, which an absl::Time need not hold.
    if (context.deadline() >= std::chrono::system_clock::now() + std::chrono::hours(24)) {
      return latest;
    }
    absl::Time deadline = absl::FromChrono(context.deadline());
    return std::min(latest, now + (deadline - now) * kUseOfDeadline);
  }

  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Unary(const char* rpc, grpc::CallbackServerContext* context,
                                  const Request* request, Response* response,
                                  absl::Status (*handler)(QueryRun&, const Request&, Response*)) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Time arrived = absl::Now();
    const absl::Time stop_at = StopAt(*context);
    auto run = [=, this] {
      QueryContext limits(options_.budget, stop_at, [context] { return context->IsCancelled(); });
      absl::Status status = Run(&limits, *request, response, handler);
      if (!status.ok()) response->Clear();
      metrics_.Count(rpc, status.code(), absl::Now() - arrived, limits.rows());
      reactor->Finish(ToGrpc(status));
    };
    if (!runners_.TrySubmit(run)) {
      metrics_.Count(rpc, absl::StatusCode::kResourceExhausted, absl::Now() - arrived, 0);
      reactor->Finish(ToGrpc(TooMany()));
    }
    return reactor;
  }

  template <typename Request, typename Response>
  absl::Status Run(QueryContext* limits, const Request& request, Response* response,
                   absl::Status (*handler)(QueryRun&, const Request&, Response*)) {
    // It may have waited for long.
    if (!limits->KeepGoing()) return limits->status();
    std::unique_ptr<ReadView> view = store_->NewReadView();
    QueryRun run;
    run.view = view.get();
    run.cache = &cache_;
    run.helpers = &helpers_;
    run.context = limits;
    run.options = &options_;
    run.now_unix_ns = NowNs();
    if (hub_ != nullptr) run.connected = hub_->ConnectedHosts();
    return handler(run, request, response);
  }

  Store* const store_;
  TraceHub* const hub_;
  const QueryOptions options_;
  QueryMetrics metrics_;
  DefinitionCache cache_;
  TaskPool helpers_;
  TraceService traces_;
  // Last, so that it is emptied first: its queries use all of the above.
  TaskPool runners_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateQueryService(Store* store, TraceHub* hub,
                                                  const QueryOptions& options) {
  return std::make_unique<QueryService>(store, hub, options);
}

}  // namespace fleetblame::aggregator
