// SPDX-License-Identifier: Apache-2.0
//
// One gRPC stream to the aggregator, as two queues: messages that came, and at most one message on
// its way out. Nothing blocks but Wait.
//
// Threading: one owner; gRPC's threads only fill the queue and wake the owner. The destructor tears
// the stream down and waits until gRPC is done with it.
#ifndef NODE_AGENT_STREAM_CONNECTION_H_
#define NODE_AGENT_STREAM_CONNECTION_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/collector.grpc.pb.h"

namespace fleetblame::agent {

class Connection final : private grpc::ClientBidiReactor<v1::AgentMessage, v1::AggregatorMessage> {
 public:
  // `wake` is called from any thread when something happened; it must not call back.
  Connection(std::shared_ptr<grpc::Channel> channel, std::function<void()> wake);
  ~Connection() override;

  // Takes the oldest message that came.
  std::optional<v1::AggregatorMessage> TakeReceived();

  // Whether Send may be called.
  bool can_send() const;
  void Send(v1::AgentMessage message);
  // Since when the current message has been waiting to go out; InfiniteFuture when none is.
  absl::Time sending_since() const;

  // No more messages from here. The aggregator then ends the stream.
  void HalfClose();
  void Cancel();

  // Set when the stream is over and every message that came was taken or will be.
  std::optional<grpc::Status> Finished();

 private:
  // Received messages are held back at the network beyond this.
  static constexpr size_t kMaxReceived = 64;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void Release();

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Collector::Stub> stub_;
  grpc::ClientContext context_;
  const std::function<void()> wake_;

  mutable absl::Mutex mutex_;
  v1::AggregatorMessage reading_;  // gRPC's while a read is under way
  v1::AgentMessage writing_;       // gRPC's while a write is under way
  std::deque<v1::AggregatorMessage> received_ ABSL_GUARDED_BY(mutex_);
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool write_pending_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time write_began_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool held_ ABSL_GUARDED_BY(mutex_) = true;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> finished_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_STREAM_CONNECTION_H_
