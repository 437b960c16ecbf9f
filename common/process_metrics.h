// SPDX-License-Identifier: Apache-2.0
//
// What /proc tells of this process, as Prometheus metrics with the names that
// client libraries of other languages use. Read at each scrape; thread-safe.
// A value that cannot be read is left out.
#ifndef COMMON_PROCESS_METRICS_H_
#define COMMON_PROCESS_METRICS_H_

#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace fleetblame {

class ProcessMetrics : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace fleetblame

#endif  // COMMON_PROCESS_METRICS_H_
