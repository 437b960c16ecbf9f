// SPDX-License-Identifier: Apache-2.0
//
// Who streams now: the admission limit, one live stream a host, and the way to all of them.
//
// One agent may stream under a host_id. A second stream of the same agent (same spool epoch) means
// that the first one is dead although TCP does not know yet: it takes over. A stream of another
// spool epoch is another agent: refused for as long as the first is there. Two agents that share
// even the spool (a cloned machine) take over from each other in turn; that is noticed and refused
// too.
//
// Threading: any thread. No lock is held while a stream is called.
#ifndef AGGREGATOR_INGEST_STREAM_REGISTRY_H_
#define AGGREGATOR_INGEST_STREAM_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "aggregator/ingest/ingest_metrics.h"
#include "aggregator/store/store.h"
#include "aggregator/trace_hub/trace_hub.h"

namespace fleetblame::aggregator {

// A stream as the rest of the aggregator sees it.
class LiveStream {
 public:
  virtual ~LiveStream() = default;
  // A newer stream of the same agent took over.
  virtual void Supersede() = 0;
  // Compute the directives again and send them when they are new.
  virtual void SendDirectives() = 0;
  // Called a few times a second.
  virtual void Tick(absl::Time now) = 0;
  // Take nothing more, settle what was taken, end with UNAVAILABLE.
  virtual void ShutDown() = 0;
};

class StreamRegistry {
 public:
  // `hub` and `metrics` must outlive it.
  StreamRegistry(size_t max_streams, TraceHub* hub, IngestMetrics* metrics)
      : max_streams_(max_streams), hub_(hub), metrics_(metrics) {}

  // False when there are too many, or when closed. What was added must be removed.
  bool Add(const std::shared_ptr<LiveStream>& stream);
  void Remove(LiveStream* stream);

  // Makes `stream` the one of its host. ALREADY_EXISTS as said above.
  absl::Status Claim(const std::string& host_id, uint64_t spool_epoch,
                     const std::shared_ptr<LiveStream>& stream, absl::Time now);
  // What is known of the host, once it is registered.
  void SetHost(std::shared_ptr<const HostRecord> host, LiveStream* stream);
  // Nothing happens when another stream has taken over.
  void Release(const std::string& host_id, LiveStream* stream);

  std::vector<std::shared_ptr<LiveStream>> All() const;
  std::vector<std::shared_ptr<LiveStream>> OfHosts(const std::vector<std::string>& host_ids) const;
  // Hosts that are connected and registered.
  std::vector<std::shared_ptr<const HostRecord>> Hosts() const;

  // Lets nobody in any more and tells those who are in.
  void ShutDown();
  // Waits until the last stream is gone; false when `timeout` was over first.
  bool AwaitEmpty(absl::Duration timeout);

 private:
  struct Claimed {
    uint64_t spool_epoch = 0;
    std::shared_ptr<LiveStream> stream;
    std::shared_ptr<const HostRecord> host;
    absl::Time takeovers_since = absl::InfinitePast();
    int takeovers = 0;
  };

  const size_t max_streams_;
  TraceHub* const hub_;
  IngestMetrics* const metrics_;

  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<LiveStream*, std::shared_ptr<LiveStream>> streams_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Claimed> by_host_ ABSL_GUARDED_BY(mu_);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_STREAM_REGISTRY_H_
