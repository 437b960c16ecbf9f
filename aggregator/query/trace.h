// SPDX-License-Identifier: Apache-2.0
//
// Query.Trace: live IOs from chosen hosts, from the hub to one client, until the client goes away
// or the duration is over. Events are never buffered here: one response is under way at a time, and
// what comes meanwhile waits in the hub's bounded queue, where losses are counted.
//
// A client that stops reading is cut off kGrace after the end of its trace.
//
// Threading: Start from any thread. A timer thread of its own ends traces. The destructor wants all
// calls to be over (the server is gone by then).
// Errors of a call: INVALID_ARGUMENT (request), NOT_FOUND (no such host), FAILED_PRECONDITION (none
// of the hosts is connected), RESOURCE_EXHAUSTED (too many traces).
#ifndef AGGREGATOR_QUERY_TRACE_H_
#define AGGREGATOR_QUERY_TRACE_H_

#include <memory>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "aggregator/query/host_set.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/query.grpc.pb.h"

namespace fleetblame::aggregator {

class TraceCall;

class TraceService {
 public:
  static constexpr absl::Duration kGrace = absl::Seconds(10);

  TraceService(TraceHub* hub, size_t max_traces);
  ~TraceService();

  // The reactor of a new call, for gRPC. `*call` is to be handed to Begin or Refuse soon; it is
  // null when there are too many, and the call ends with RESOURCE_EXHAUSTED by itself.
  grpc::ServerWriteReactor<v1::TraceResponse>* NewCall(grpc::CallbackServerContext* context,
                                                       const v1::TraceRequest* request,
                                                       TraceCall** call);
  // Subscribes and sends the first response. `view` is used during this only. The call may be gone
  // on return.
  static void Begin(TraceCall* call, const ReadView& view);
  static void Refuse(TraceCall* call, const absl::Status& status);
  size_t running() const;

 private:
  friend class TraceCall;
  void Remove(TraceCall* call);
  void RunTimer();

  TraceHub* const hub_;
  const size_t max_traces_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_set<TraceCall*> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread timer_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_TRACE_H_
