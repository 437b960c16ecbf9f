// SPDX-License-Identifier: Apache-2.0
//
// Where live events of trace mode change hands: people subscribe to hosts (Query.Trace), streams of
// agents publish what their hosts send, and the hub works out what each agent is to trace.
//
// An agent knows one trace at a time. When several people watch one host, its directive is the
// union of what they asked for, and each of them gets only what fits their own filter and rate.
//
// Nothing here is stored. Every queue is bounded; what does not fit is dropped and counted for the
// subscriber that it was meant for.
//
// Threading: all methods of hub and subscription may be called from any thread. No lock of the hub
// is held while `on_ready` or the listener runs.
#ifndef AGGREGATOR_TRACE_HUB_TRACE_HUB_H_
#define AGGREGATOR_TRACE_HUB_TRACE_HUB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/control.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// Events of one host, in the order in which they came.
struct TraceChunk {
  std::string host_id;
  std::vector<v1::TraceEvent> events;
  // Lost for this subscriber since its last chunk of this host: in the agent, by rate or for want
  // of room in the queue. A chunk may hold losses only.
  uint64_t dropped = 0;
};

// Interest in some hosts. Destroying it ends the interest: the agents are told, and when the
// destructor returns `on_ready` is neither running nor will it be called again.
class TraceSubscription {
 public:
  virtual ~TraceSubscription() = default;
  // The oldest chunk, or nothing when none waits. Never blocks.
  virtual std::optional<TraceChunk> Take() = 0;
};

class TraceHub {
 public:
  struct Limits {
    size_t max_subscriptions = 64;
    // Per subscription; events are counted with their size in memory.
    size_t queue_bytes = 4 << 20;
  };

  static std::unique_ptr<TraceHub> Create(const Limits& limits);
  virtual ~TraceHub() = default;

  // ---- for those who watch (Query.Trace)

  // `want` says filter, rate for each host and duration; its trace_id is ignored. Empty operations
  // and devices mean all; devices are kernel names or globs. `host_ids` need not be connected: an
  // agent that connects later is told then. The subscription does not end by itself when the
  // duration is over, but agents stop sending.
  // `on_ready` is called after the queue went from empty to not empty; then Take until it yields
  // nothing. It must not destroy the subscription and should be quick: hand over and return.
  // RESOURCE_EXHAUSTED beyond max_subscriptions, INVALID_ARGUMENT without hosts or duration.
  virtual absl::StatusOr<std::unique_ptr<TraceSubscription>> Subscribe(
      const std::vector<std::string>& host_ids, const v1::TraceDirective& want,
      std::function<void()> on_ready) = 0;

  // host_ids that stream at this moment.
  virtual std::set<std::string> ConnectedHosts() const = 0;
  virtual bool IsConnected(std::string_view host_id) const = 0;

  // ---- for ingest and control

  virtual void HostConnected(std::string_view host_id) = 0;
  virtual void HostDisconnected(std::string_view host_id) = 0;
  // Hands events to all subscriptions of this host whose filter they pass. Events of a trace that
  // is over are dropped and counted.
  virtual void Publish(std::string_view host_id, v1::TraceEvents events) = 0;
  // What this host is to trace now, with the time that is left; nothing = trace mode off.
  virtual std::optional<v1::TraceDirective> DirectiveFor(std::string_view host_id) const = 0;
  // Called with the hosts whose directive changed. At most one listener; set it before streams and
  // queries begin, nullptr when they have ended. It must not call Subscribe.
  virtual void SetListener(
      std::function<void(const std::vector<std::string>& host_ids)> listener) = 0;

  struct Stats {
    uint64_t subscriptions = 0;
    uint64_t events = 0;          // published
    uint64_t dropped_events = 0;  // not delivered to a subscriber that wanted them
    uint64_t stale_events = 0;    // nobody watched any more
  };
  virtual Stats stats() const = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_TRACE_HUB_TRACE_HUB_H_
