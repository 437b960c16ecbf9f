// SPDX-License-Identifier: Apache-2.0
#include "node-agent/pipeline/self_metrics.h"

namespace fleetblame::agent {

SelfMetrics::SelfMetrics() : registry_(std::make_shared<prometheus::Registry>()) {}

void SelfMetrics::SetTotal(const std::string& name, const std::string& help, double total,
                           const MetricLabels& labels) {
  Total& known = totals_[{name, labels}];
  if (known.counter == nullptr) {
    known.counter = &prometheus::BuildCounter()
                         .Name("fleetblame_agent_" + name)
                         .Help(help)
                         .Register(*registry_)
                         .Add(labels);
  }
  known.counter->Increment(total >= known.last ? total - known.last : total);
  known.last = total;
}

void SelfMetrics::SetGauge(const std::string& name, const std::string& help, double value,
                           const MetricLabels& labels) {
  prometheus::Gauge*& gauge = gauges_[{name, labels}];
  if (gauge == nullptr) {
    gauge = &prometheus::BuildGauge()
                 .Name("fleetblame_agent_" + name)
                 .Help(help)
                 .Register(*registry_)
                 .Add(labels);
  }
  gauge->Set(value);
}

}  // namespace fleetblame::agent
