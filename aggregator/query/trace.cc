// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/trace.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/query/grpc_status.h"
#include "aggregator/query/trace_request.h"

namespace fleetblame::aggregator {
namespace {

// Of one response; keeps it far below the 4 MiB that gRPC clients take by default.
constexpr size_t kMaxEventsPerResponse = 500;
constexpr absl::Duration kTick = absl::Milliseconds(50);

}  // namespace

// One client. Lives from NewCall until gRPC says OnDone.
class TraceCall : public grpc::ServerWriteReactor<v1::TraceResponse> {
 public:
  TraceCall(TraceService* service, grpc::CallbackServerContext* context,
            const v1::TraceRequest* request)
      : service_(service), context_(context), request_(request) {}

  void Begin(const ReadView& view) {
    absl::StatusOr<TraceOrder> order = CheckTraceRequest(*request_, view);
    if (!order.ok()) return End(ToGrpc(order.status()));
    std::vector<std::string> host_ids;
    v1::TraceResponse first;
    for (const HostRecord& host : order->hosts.hosts()) {
      host_ids.push_back(host.host_id);
      hostnames_[host.host_id] = host.hostname;
      if (service_->hub_->IsConnected(host.host_id)) first.add_hosts(NameOf(host));
    }
    if (first.hosts_size() == 0) {
      return End(ToGrpc(absl::FailedPreconditionError(absl::StrCat(
          "none of the ", host_ids.size(),
          " chosen hosts is connected to this aggregator at the moment; see their last_seen in "
          "ListHosts"))));
    }
    auto subscription = service_->hub_->Subscribe(host_ids, order->want, [this] { Pump(); });
    if (!subscription.ok()) return End(ToGrpc(subscription.status()));
    {
      absl::MutexLock lock(&mutex_);
      subscription_ = *std::move(subscription);
      stop_at_ = absl::Now() + absl::Nanoseconds(order->want.max_duration_ns());
      began_ = true;
      if (!ending_) {
        response_ = std::move(first);
        writing_ = true;
        StartWrite(&response_);
        return;
      }
    }
    MaybeFinish();
  }

  // Ends the call with `status` as soon as no write is under way; the first status counts.
  void End(const grpc::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (!ending_) {
        ending_ = true;
        status_ = status;
      }
      began_ = true;
    }
    MaybeFinish();
  }

  void Tick(absl::Time now) {
    bool over = false;
    bool stuck = false;
    {
      absl::MutexLock lock(&mutex_);
      over = began_ && !ending_ && now >= stop_at_;
      stuck = began_ && !finished_ && now >= stop_at_ + TraceService::kGrace;
    }
    if (over) End(grpc::Status::OK);
    if (stuck) context_->TryCancel();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok && !ending_) {
        ending_ = true;
        status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away");
      }
    }
    Pump();
    MaybeFinish();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      if (!ending_) {
        ending_ = true;
        status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away");
      }
    }
    MaybeFinish();
  }

  void OnDone() override {
    // Ends the interest; waits for a Pump under way.
    subscription_.reset();
    service_->Remove(this);
    delete this;
  }

 private:
  // Sends the next piece if none is under way.
  void Pump() {
    absl::MutexLock lock(&mutex_);
    // Before Begin is through, the first response has not been sent.
    if (!began_ || writing_ || ending_) return;
    if (next_event_ >= chunk_.events.size()) {
      std::optional<TraceChunk> chunk = subscription_->Take();
      if (!chunk.has_value()) return;
      chunk_ = *std::move(chunk);
      next_event_ = 0;
    }
    response_.Clear();
    response_.set_host_id(chunk_.host_id);
    if (auto name = hostnames_.find(chunk_.host_id); name != hostnames_.end()) {
      response_.set_hostname(name->second);
    }
    response_.set_dropped(std::exchange(chunk_.dropped, 0));
    while (next_event_ < chunk_.events.size() &&
           static_cast<size_t>(response_.events_size()) < kMaxEventsPerResponse) {
      *response_.add_events() = std::move(chunk_.events[next_event_++]);
    }
    writing_ = true;
    StartWrite(&response_);
  }

  // Once Finish is called, gRPC may call OnDone from another thread: it comes last and with no lock
  // held. Begin must be through before, or it would use a call that is gone.
  void MaybeFinish() {
    grpc::Status status;
    {
      absl::MutexLock lock(&mutex_);
      if (!began_ || !ending_ || writing_ || finished_) return;
      finished_ = true;
      status = status_;
    }
    Finish(status);
  }

  TraceService* const service_;
  grpc::CallbackServerContext* const context_;
  const v1::TraceRequest* const request_;
  std::map<std::string, std::string> hostnames_;  // set in Begin, then only read

  absl::Mutex mutex_;
  // Set in Begin under mutex_, reset in OnDone, when ending_ keeps everybody else from it.
  std::unique_ptr<TraceSubscription> subscription_;
  bool began_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Time stop_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  TraceChunk chunk_ ABSL_GUARDED_BY(mutex_);
  size_t next_event_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::TraceResponse response_;  // gRPC's while writing_
};

TraceService::TraceService(TraceHub* hub, size_t max_traces)
    : hub_(hub), max_traces_(max_traces), timer_([this] { RunTimer(); }) {}

TraceService::~TraceService() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  timer_.join();
}

grpc::ServerWriteReactor<v1::TraceResponse>* TraceService::NewCall(
    grpc::CallbackServerContext* context, const v1::TraceRequest* request, TraceCall** call) {
  auto* created = new TraceCall(this, context, request);
  bool too_many = false;
  {
    absl::MutexLock lock(&mutex_);
    too_many = calls_.size() >= max_traces_;
    calls_.insert(created);
  }
  *call = too_many ? nullptr : created;
  // gRPC keeps a call that ended before it has seen the reactor.
  if (too_many) {
    Refuse(created, absl::ResourceExhaustedError(absl::StrCat(
                        max_traces_, " traces are running; end one of them or try again later")));
  }
  return created;
}

void TraceService::Begin(TraceCall* call, const ReadView& view) { call->Begin(view); }

void TraceService::Refuse(TraceCall* call, const absl::Status& status) {
  call->End(ToGrpc(status));
}

size_t TraceService::running() const {
  absl::MutexLock lock(&mutex_);
  return calls_.size();
}

void TraceService::Remove(TraceCall* call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

void TraceService::RunTimer() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kTick);
    absl::Time now = absl::Now();
    // A call that ends meanwhile waits in Remove.
    for (TraceCall* call : calls_) call->Tick(now);
  }
}

}  // namespace fleetblame::aggregator
