// SPDX-License-Identifier: Apache-2.0
//
// The Collector service: connects gRPC streams with AgentSessions, and owns what they share. Uses
// gRPC's callback API: a stream that is idle has no thread, and all of them share gRPC's few.
//
// Messages arrive as bytes and are parsed here, so that a malformed one gets a status that says so.
//
// Threading: any thread. Give `service()` to one server. To end: ShutDown, then shut the server
// down, then destroy this.
#ifndef AGGREGATOR_INGEST_COLLECTOR_SERVICE_H_
#define AGGREGATOR_INGEST_COLLECTOR_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/ingest/committer.h"
#include "aggregator/ingest/directive_source.h"
#include "aggregator/ingest/ingest_metrics.h"
#include "aggregator/ingest/limits.h"
#include "aggregator/store/store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "grpcpp/impl/service_type.h"

namespace fleetblame::aggregator {

class CollectorService {
 public:
  struct Options {
    IngestLimits limits;
    Committer::Options committer;
    // Of each stream a client certificate that names its host is demanded (host_binding.h).
    bool bind_hosts = false;
    // The store began to refuse writes, or takes them again.
    std::function<void(bool writable)> on_store_health;
  };

  // What is pointed to must outlive the service.
  static std::unique_ptr<CollectorService> Create(Store* store, TraceHub* hub,
                                                  const DirectiveSource* directives,
                                                  IngestMetrics* metrics, const Options& options);
  virtual ~CollectorService() = default;

  virtual grpc::Service* service() = 0;

  // A message that gRPC may receive at most: beyond max_message_bytes, so that agents whose batch
  // is too large are told to split it.
  virtual int max_receive_bytes() const = 0;

  // Directives changed: for some hosts, or perhaps for all.
  virtual void PushDirectives(const std::vector<std::string>& host_ids) = 0;
  virtual void PushDirectivesToAll() = 0;
  virtual std::vector<std::shared_ptr<const HostRecord>> ConnectedHosts() const = 0;

  // Takes no new streams, settles what the others sent, ends them with UNAVAILABLE. Returns when
  // the last is gone or `timeout` is over.
  virtual void ShutDown(absl::Duration timeout) = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_COLLECTOR_SERVICE_H_
