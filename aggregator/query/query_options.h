// SPDX-License-Identifier: Apache-2.0
//
// How the query service may use the machine. Plain values; the defaults suit two cores.
#ifndef AGGREGATOR_QUERY_QUERY_OPTIONS_H_
#define AGGREGATOR_QUERY_QUERY_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "aggregator/query/query_context.h"

namespace prometheus {
class Registry;
}

namespace fleetblame::aggregator {

struct QueryOptions {
  // Queries that run at once; more wait, and when so many wait that the queue is full, the next is
  // refused with RESOURCE_EXHAUSTED.
  int max_running = 2;
  size_t max_queued = 64;
  // Threads besides the query's own that scans may use together; 0 = none.
  int scan_helpers = 1;

  QueryBudget budget;
  // Blocks of hosts (a host has some 50 for a day) beyond which the sums of the whole fleet answer
  // where they can. Then groups do not tell how many hosts they are from.
  uint64_t max_host_blocks = 12'000;
  // The longest that a query may take, and what one without a deadline of its own gets.
  absl::Duration max_duration = absl::Seconds(60);

  // Hosts whose clock differs by more are named in the summary; a window of the agents.
  uint64_t skew_threshold_ns = 10'000'000'000;
  // The shortest step of a series: what agents cut by default.
  uint64_t raw_window_ns = 10'000'000'000;

  // Live traces at once.
  size_t max_traces = 32;

  // Own metrics go here; may be empty.
  std::shared_ptr<prometheus::Registry> registry;
  // Realtime clock in nanoseconds; empty = the system's.
  std::function<uint64_t()> now_unix_ns;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_QUERY_OPTIONS_H_
