// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/collector_service.h"

#include <pthread.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "aggregator/ingest/agent_session.h"
#include "aggregator/ingest/batch_pool.h"
#include "aggregator/ingest/byte_budget.h"
#include "aggregator/ingest/deferred_work.h"
#include "aggregator/ingest/host_binding.h"
#include "aggregator/ingest/host_directory.h"
#include "aggregator/ingest/registrar.h"
#include "aggregator/ingest/stream_registry.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/slice.h"
#include "proto/fleetblame/v1/collector.grpc.pb.h"

namespace fleetblame::aggregator {
namespace {

using RawReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr absl::Duration kTickInterval = absl::Milliseconds(250);

grpc::ByteBuffer ToBytes(const v1::AggregatorMessage& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// Turns a stream away.
class RefusingReactor final : public RawReactor {
 public:
  explicit RefusingReactor(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// gRPC's end of one session. Keeps itself alive until gRPC is done with it.
class StreamReactor final : public RawReactor,
                            public AgentSession::Io,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  StreamReactor(grpc::CallbackServerContext* rpc, StreamRegistry* registry,
                std::shared_ptr<AgentSession> session)
      : registry_(registry), session_(std::move(session)), rpc_(rpc) {}

  void Begin() {
    self_ = shared_from_this();
    session_->Start(self_);
  }

  // ---- gRPC
  void OnReadDone(bool ok) override {
    if (ok) {
      grpc::ByteBuffer message;
      message.Swap(&incoming_);
      session_->Receive(std::move(message));
    } else {
      session_->ReceiveEnd();
    }
  }
  void OnWriteDone(bool ok) override {
    if (!ok) session_->Closed();
    absl::MutexLock lock(&mu_);
    writing_ = false;
    Pump();
  }
  void OnCancel() override { session_->Closed(); }
  void OnDone() override {
    {
      absl::MutexLock lock(&mu_);
      rpc_ = nullptr;
      finished_ = true;
    }
    session_->Closed();
    registry_->Remove(session_.get());
    std::shared_ptr<StreamReactor> self = std::move(self_);
  }

  // ---- AgentSession::Io
  void ReadMore() override {
    absl::MutexLock lock(&mu_);
    if (!finished_) StartRead(&incoming_);
  }
  void Wake() override {
    absl::MutexLock lock(&mu_);
    Pump();
  }
  void Cancel() override {
    absl::MutexLock lock(&mu_);
    if (rpc_ != nullptr) rpc_->TryCancel();
  }

 private:
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return;
    AgentSession::Next next = session_->TakeNext();
    if (next.message) {
      writing_ = true;
      outgoing_ = ToBytes(*next.message);
      StartWrite(&outgoing_);
    } else if (next.finish) {
      finished_ = true;
      Finish(*next.finish);
    }
  }

  StreamRegistry* const registry_;
  const std::shared_ptr<AgentSession> session_;
  std::shared_ptr<StreamReactor> self_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;

  absl::Mutex mu_;
  grpc::CallbackServerContext* rpc_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

class CollectorServiceImpl final : public CollectorService {
 public:
  CollectorServiceImpl(Store* store, TraceHub* hub, const DirectiveSource* directives,
                       IngestMetrics* metrics, const Options& options)
      : metrics_(metrics),
        budget_(options.limits.inflight_bytes),
        registry_(options.limits.max_streams, hub, metrics),
        hosts_(store, options.limits),
        rpc_(this) {
    committer_.emplace(store, metrics, options.committer, options.on_store_health);
    registrar_.emplace(&*committer_, &hosts_);
    deferred_.emplace();
    context_.limits = options.limits;
    context_.store = store;
    context_.committer = &*committer_;
    context_.budget = &budget_;
    context_.pool = &pool_;
    context_.deferred = &*deferred_;
    context_.registry = &registry_;
    context_.registrar = &*registrar_;
    context_.hosts = &hosts_;
    context_.bind_hosts = options.bind_hosts;
    context_.hub = hub;
    context_.directives = directives;
    context_.metrics = metrics;
    ticker_ = std::thread([this] { TickLoop(); });
  }

  ~CollectorServiceImpl() override {
    stop_.Notify();
    ticker_.join();
    // The last commits free memory, and what waited for it is handed to `deferred_`, where sessions
    // that are closed by now drop it.
    committer_.reset();
    deferred_.reset();
  }

  grpc::Service* service() override { return &rpc_; }

  int max_receive_bytes() const override {
    return static_cast<int>(
        std::min<uint64_t>(2 * context_.limits.max_message_bytes, std::numeric_limits<int>::max()));
  }

  void PushDirectives(const std::vector<std::string>& host_ids) override {
    for (const auto& stream : registry_.OfHosts(host_ids)) stream->SendDirectives();
  }
  void PushDirectivesToAll() override {
    for (const auto& stream : registry_.All()) stream->SendDirectives();
  }
  std::vector<std::shared_ptr<const HostRecord>> ConnectedHosts() const override {
    return registry_.Hosts();
  }

  void ShutDown(absl::Duration timeout) override {
    registry_.ShutDown();
    registry_.AwaitEmpty(timeout);
  }

 private:
  class Rpc final : public v1::Collector::WithRawCallbackMethod_Stream<v1::Collector::Service> {
   public:
    explicit Rpc(CollectorServiceImpl* owner) : owner_(owner) {}
    RawReactor* Stream(grpc::CallbackServerContext* rpc) override { return owner_->NewStream(rpc); }

   private:
    CollectorServiceImpl* const owner_;
  };

  RawReactor* NewStream(grpc::CallbackServerContext* rpc) {
    AgentSession::Peer peer{rpc->peer(), CertificateNames(*rpc->auth_context())};
    auto session = std::make_shared<AgentSession>(&context_, std::move(peer), absl::Now());
    if (!registry_.Add(session)) {
      metrics_->refused_admission.Increment();
      return new RefusingReactor(
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       "too many agents are connected, or the aggregator is shutting down; retry"));
    }
    metrics_->streams_opened.Increment();
    auto reactor = std::make_shared<StreamReactor>(rpc, &registry_, std::move(session));
    reactor->Begin();
    return reactor.get();
  }

  void TickLoop() {
    pthread_setname_np(pthread_self(), "tick");
    while (!stop_.WaitForNotificationWithTimeout(kTickInterval)) {
      absl::Time now = absl::Now();
      for (const auto& stream : registry_.All()) stream->Tick(now);
      metrics_->inflight_bytes.Set(static_cast<double>(budget_.used_bytes()));
      metrics_->streams_waiting.Set(static_cast<double>(budget_.waiting()));
    }
  }

  IngestMetrics* const metrics_;
  ByteBudget budget_;
  BatchPool pool_;
  StreamRegistry registry_;
  HostDirectory hosts_;
  SessionContext context_;
  std::optional<Registrar> registrar_;  // outlives the committer's thread
  std::optional<Committer> committer_;
  std::optional<DeferredWork> deferred_;
  Rpc rpc_;
  absl::Notification stop_;
  std::thread ticker_;
};

}  // namespace

std::unique_ptr<CollectorService> CollectorService::Create(Store* store, TraceHub* hub,
                                                           const DirectiveSource* directives,
                                                           IngestMetrics* metrics,
                                                           const Options& options) {
  return std::make_unique<CollectorServiceImpl>(store, hub, directives, metrics, options);
}

}  // namespace fleetblame::aggregator
