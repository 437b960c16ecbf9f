// SPDX-License-Identifier: Apache-2.0
//
// Trace mode: single IOs, live, to one person who watches. While a directive asks for it a thread
// drains the tracer's ring buffer, keeps what the directive wants, and holds it until the ids in it
// are known (after the next Collect); then the events wait for the stream.
//
//   tracer ──PollTrace──► filter, rate limit ──► raw queue ──Resolve──► event queue ──► stream
//
// Both queues are bounded; what does not fit is counted in TraceEvents.dropped. Trace mode ends by
// itself after the directive's max_duration, whatever happens to the connection.
//
// Threading: Apply, BeforeCollect, Resolve and Stop from the thread that calls Tracer::Collect; TakeEvents from
// any thread; the polling thread is its own.
#ifndef NODE_AGENT_TRACE_TRACE_MODE_H_
#define NODE_AGENT_TRACE_TRACE_MODE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "node-agent/compact/local_names.h"
#include "node-agent/dictionary/dictionary.h"
#include "node-agent/tracer/tracer.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/control.pb.h"

namespace fleetblame::agent {

struct TraceModeOptions {
  uint64_t default_events_per_second = 2000;
  absl::Duration longest = absl::Hours(1);
  size_t max_raw = 8192;
  size_t max_events = 8192;
  size_t max_events_per_message = 512;
};

class TraceMode {
 public:
  // All must outlive this object.
  TraceMode(Tracer* tracer, LocalNames* names, Dictionary* dictionary,
            const TraceModeOptions& options);
  ~TraceMode();

  // What the newest directives say; nullptr = off. `now` is for the end of its duration.
  absl::Status Apply(const v1::TraceDirective* directive, absl::Time now);
  bool on() const { return on_; }

  // To be called before each Tracer::Collect: what was polled until now has its ids defined by it.
  // What is polled while it runs may not.
  void BeforeCollect();

  // Resolves what was polled before the last BeforeCollect, and switches off when time is up. Returns
  // whether there are events to send.
  bool Resolve(absl::Time now, int64_t realtime_offset_ns);

  void Stop();

  std::optional<v1::TraceEvents> TakeEvents() ABSL_LOCKS_EXCLUDED(mutex_);

  uint64_t dropped() const { return total_dropped_; }
  uint64_t seen() const { return total_seen_; }

 private:
  struct Filter {
    uint64_t trace_id = 0;
    std::set<uint32_t> operations;
    std::set<std::string> devices;
    uint64_t min_total_ns = 0;
    uint64_t events_per_second = 0;
  };
  void Poll();
  void OnRecord(const TraceRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Wanted(const TraceRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::TraceEvent MakeEvent(const TraceRecord& record, int64_t realtime_offset_ns);
  void Count(uint64_t dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Tracer* const tracer_;
  LocalNames* const names_;
  Dictionary* const dictionary_;
  const TraceModeOptions options_;

  bool on_ = false;
  absl::Time off_at_ = absl::InfiniteFuture();
  uint64_t ended_trace_id_ = 0;  // ran its time; the same directive does not start it again
  std::thread thread_;
  std::atomic<bool> polling_ = false;
  std::atomic<uint64_t> total_dropped_ = 0;
  std::atomic<uint64_t> total_seen_ = 0;

  absl::Mutex mutex_;
  Filter filter_ ABSL_GUARDED_BY(mutex_);
  std::deque<TraceRecord> raw_ ABSL_GUARDED_BY(mutex_);
  size_t ripe_ ABSL_GUARDED_BY(mutex_) = 0;  // how many of raw_, from its front, can be resolved
  std::deque<v1::TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;  // not told to the aggregator yet
  double tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time refilled_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACE_TRACE_MODE_H_
