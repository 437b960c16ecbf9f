// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/load_agent.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace fleetblame::bench {
namespace {

constexpr char kMethod[] = "/fleetblame.v1.Collector/Stream";

bool Parse(grpc::ByteBuffer* bytes, v1::AggregatorMessage* message) {
  grpc::ProtoBufferReader reader(bytes);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

}  // namespace

LoadAgent::LoadAgent(const SyntheticFleet* fleet, int index, int batches_under_way,
                     std::shared_ptr<grpc::Channel> channel, LoadCounters* counters)
    : channel_(channel),
      batches_under_way_(batches_under_way),
      counters_(counters),
      stub_(std::move(channel)),
      host_(fleet, index) {}

void LoadAgent::Start() {
  stub_.PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
  // Writes come from Tick, outside of reactions.
  AddHold();
  StartCall();
  absl::MutexLock lock(&mu_);
  v1::AgentMessage message;
  *message.mutable_hello() = host_.Hello();
  message.mutable_hello()->set_realtime_unix_ns(absl::GetCurrentTimeNanos());
  Write(message.SerializeAsString());
  StartRead(&incoming_);
}

void LoadAgent::Write(const std::string& message) {
  grpc::Slice slice(message);
  outgoing_ = grpc::ByteBuffer(&slice, 1);
  writing_ = true;
  StartWrite(&outgoing_);
}

void LoadAgent::SendNext() {
  bool wanted = batches_under_way_ == 0
                    ? due_ > 0
                    : under_way_.size() < static_cast<size_t>(batches_under_way_);
  if (!registered_ || writing_ || stopping_ || done_ || !wanted) return;
  if (due_ > 0) --due_;
  v1::AgentMessage message;
  *message.mutable_batch() = host_.NextBatch();
  std::string bytes = message.SerializeAsString();
  counters_->batch_bytes_sent += bytes.size();
  counters_->rows_sent += message.batch().row_count();
  under_way_.push_back({message.batch().seq(), message.batch().row_count(), absl::Now()});
  Write(bytes);
}

void LoadAgent::Tick() {
  absl::MutexLock lock(&mu_);
  ++due_;
  SendNext();
}

void LoadAgent::Stop() {
  absl::MutexLock lock(&mu_);
  if (stopping_) return;
  stopping_ = true;
  context_.TryCancel();
  RemoveHold();
}

void LoadAgent::AwaitDone() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&done_));
}

void LoadAgent::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  writing_ = false;
  if (ok) SendNext();
}

void LoadAgent::OnReadDone(bool ok) {
  if (!ok) return;
  v1::AggregatorMessage message;
  absl::MutexLock lock(&mu_);
  if (Parse(&incoming_, &message)) {
    if (message.has_hello_ack()) {
      registered_ = true;
      ++counters_->registered;
    }
    if (message.has_ack()) Acknowledged(message.ack().durable_seq());
    // The load is such that neither should happen: the benchmark reports them and is void.
    if (message.has_reject()) ++counters_->rejects;
    if (message.has_need()) ++counters_->needs;
  }
  SendNext();
  StartRead(&incoming_);
}

void LoadAgent::Acknowledged(uint64_t durable_seq) {
  absl::Time now = absl::Now();
  while (!under_way_.empty() && under_way_.front().seq <= durable_seq) {
    counters_->rows_acked += under_way_.front().rows;
    ++counters_->batches_acked;
    auto latency_us =
        static_cast<uint64_t>(absl::ToInt64Microseconds(now - under_way_.front().sent));
    counters_->ack_latency_us_sum += latency_us;
    uint64_t max = counters_->ack_latency_us_max;
    while (latency_us > max &&
           !counters_->ack_latency_us_max.compare_exchange_weak(max, latency_us)) {
    }
    under_way_.pop_front();
  }
}

void LoadAgent::OnDone(const grpc::Status&) {
  absl::MutexLock lock(&mu_);
  if (!stopping_) ++counters_->streams_ended;
  done_ = true;
}

}  // namespace fleetblame::bench
