// SPDX-License-Identifier: Apache-2.0
//
// The agent's own metrics (fleetblame_agent_*), set from the statistics of its stages every few
// seconds. docs/agent.md lists them.
//
// Threading: Set from the main thread; scrapes from any.
#ifndef NODE_AGENT_PIPELINE_SELF_METRICS_H_
#define NODE_AGENT_PIPELINE_SELF_METRICS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace fleetblame::agent {

using MetricLabels = std::map<std::string, std::string>;

class SelfMetrics {
 public:
  SelfMetrics();

  // A counter's current total. Totals that a source begins anew (they shrank) are added up.
  void SetTotal(const std::string& name, const std::string& help, double total,
                const MetricLabels& labels = {});
  void SetGauge(const std::string& name, const std::string& help, double value,
                const MetricLabels& labels = {});

  std::shared_ptr<prometheus::Registry> registry() const { return registry_; }

 private:
  struct Total {
    prometheus::Counter* counter = nullptr;
    double last = 0;
  };
  std::shared_ptr<prometheus::Registry> registry_;
  std::map<std::pair<std::string, MetricLabels>, Total> totals_;
  std::map<std::pair<std::string, MetricLabels>, prometheus::Gauge*> gauges_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_PIPELINE_SELF_METRICS_H_
