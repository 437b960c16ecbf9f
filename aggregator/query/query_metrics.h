// SPDX-License-Identifier: Apache-2.0
//
// Own metrics of the query service: fleetblame_query_requests_total{rpc,code},
// fleetblame_query_seconds{rpc}, fleetblame_query_rows_total. Does nothing without a registry.
//
// Threading: any thread.
#ifndef AGGREGATOR_QUERY_QUERY_METRICS_H_
#define AGGREGATOR_QUERY_QUERY_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace fleetblame::aggregator {

class QueryMetrics {
 public:
  explicit QueryMetrics(std::shared_ptr<prometheus::Registry> registry);

  void Count(const std::string& rpc, absl::StatusCode code, absl::Duration took, uint64_t rows);

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>* requests_ = nullptr;
  prometheus::Family<prometheus::Histogram>* seconds_ = nullptr;
  prometheus::Counter* rows_ = nullptr;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_QUERY_METRICS_H_
