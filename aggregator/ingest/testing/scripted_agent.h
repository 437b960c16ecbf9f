// SPDX-License-Identifier: Apache-2.0
//
// The other end of a stream, one step at a time: what an agent, or somebody who means no good,
// sends and what comes back. Every wait ends after a few seconds with a failed expectation of the
// caller.
//
// Threading: one thread.
#ifndef AGGREGATOR_INGEST_TESTING_SCRIPTED_AGENT_H_
#define AGGREGATOR_INGEST_TESTING_SCRIPTED_AGENT_H_

#include <memory>
#include <optional>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "proto/fleetblame/v1/collector.grpc.pb.h"

namespace fleetblame::aggregator {

class ScriptedAgent {
 public:
  explicit ScriptedAgent(const std::shared_ptr<grpc::Channel>& channel);
  // Cancels what is still open.
  ~ScriptedAgent();

  bool Send(const v1::AgentMessage& message);
  bool Send(v1::Hello hello);
  bool Send(v1::Batch batch);
  bool Send(v1::Definitions definitions);
  bool Send(v1::TraceEvents events);
  // Any bytes as one message.
  bool SendBytes(const std::string& bytes);
  void WritesDone();

  // Nothing when the stream has ended.
  std::optional<v1::AggregatorMessage> Receive();
  // The next message of this kind; others before it are passed over.
  std::optional<v1::HelloAck> ReceiveHelloAck();
  std::optional<v1::Reject> ReceiveReject();
  std::optional<v1::Need> ReceiveNeed();
  std::optional<v1::Directives> ReceiveDirectives();
  // Reads until an Ack covers `seq`. False when the stream ends or something is rejected first.
  bool AwaitAck(uint64_t seq);
  // Says Hello and awaits the answer.
  std::optional<v1::HelloAck> Register(const v1::Hello& hello);

  // Reads whatever is left and returns how the stream ended.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

 private:
  using Stream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stream> stream_;
  bool finished_ = false;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_TESTING_SCRIPTED_AGENT_H_
