// SPDX-License-Identifier: Apache-2.0
//
// The thread that lets the store tidy up (rollups, retention) and copies its figures, and the
// hub's, to /metrics.
//
// Threading: construct and destroy; the thread is its own. Destroying it waits for the step under
// way.
#ifndef AGGREGATOR_SERVER_UPKEEP_H_
#define AGGREGATOR_SERVER_UPKEEP_H_

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "aggregator/store/store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace fleetblame::aggregator {

class Upkeep {
 public:
  struct Options {
    absl::Duration interval = absl::Seconds(2);
    absl::Duration budget = absl::Milliseconds(500);  // of one step
  };

  // All must outlive it.
  Upkeep(Store* store, TraceHub* hub, std::shared_ptr<prometheus::Registry> registry,
         const Options& options);
  ~Upkeep();

 private:
  void Loop();
  // Whether the store used up its budget and has more to do.
  bool Step();
  void CopyGauges();

  Store* const store_;
  TraceHub* const hub_;
  const std::shared_ptr<prometheus::Registry> registry_;
  const Options options_;
  std::map<std::string, prometheus::Gauge*> gauges_;
  prometheus::Counter& errors_;
  prometheus::Counter& seconds_;
  absl::Time last_error_log_ = absl::InfinitePast();
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_SERVER_UPKEEP_H_
