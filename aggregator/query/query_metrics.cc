// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/query_metrics.h"

#include <utility>

namespace fleetblame::aggregator {

QueryMetrics::QueryMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)) {
  if (registry_ == nullptr) return;
  requests_ = &prometheus::BuildCounter()
                   .Name("fleetblame_query_requests_total")
                   .Help("Queries that ended, by RPC and gRPC status")
                   .Register(*registry_);
  seconds_ = &prometheus::BuildHistogram()
                  .Name("fleetblame_query_seconds")
                  .Help("From arrival to answer, waiting included")
                  .Register(*registry_);
  rows_ = &prometheus::BuildCounter()
               .Name("fleetblame_query_rows_total")
               .Help("Rows that queries have read")
               .Register(*registry_)
               .Add({});
}

void QueryMetrics::Count(const std::string& rpc, absl::StatusCode code, absl::Duration took,
                         uint64_t rows) {
  if (registry_ == nullptr) return;
  requests_->Add({{"rpc", rpc}, {"code", absl::StatusCodeToString(code)}}).Increment();
  seconds_
      ->Add({{"rpc", rpc}}, prometheus::Histogram::BucketBoundaries{0.001, 0.003, 0.01, 0.03, 0.1,
                                                                    0.3, 1, 3, 10, 30})
      .Observe(absl::ToDoubleSeconds(took));
  rows_->Increment(static_cast<double>(rows));
}

}  // namespace fleetblame::aggregator
