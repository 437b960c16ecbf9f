// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/testing/scripted_agent.h"

#include <chrono>
#include <utility>
#include <vector>

#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/sync_stream.h"

namespace fleetblame::aggregator {
namespace {

constexpr char kMethod[] = "/fleetblame.v1.Collector/Stream";
constexpr auto kPatience = std::chrono::seconds(30);

}  // namespace

ScriptedAgent::ScriptedAgent(const std::shared_ptr<grpc::Channel>& channel) : channel_(channel) {
  context_.set_deadline(std::chrono::system_clock::now() + kPatience);
  // By bytes, so that messages which no honest agent makes can be sent too.
  stream_.reset(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          channel_.get(),
          grpc::internal::RpcMethod(kMethod, grpc::internal::RpcMethod::BIDI_STREAMING, channel_),
          &context_));
}

ScriptedAgent::~ScriptedAgent() {
  if (finished_) return;
  context_.TryCancel();
  Finish();
}

bool ScriptedAgent::SendBytes(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return stream_->Write(grpc::ByteBuffer(&slice, 1));
}

bool ScriptedAgent::Send(const v1::AgentMessage& message) {
  return SendBytes(message.SerializeAsString());
}
bool ScriptedAgent::Send(v1::Hello hello) {
  v1::AgentMessage message;
  *message.mutable_hello() = std::move(hello);
  return Send(message);
}
bool ScriptedAgent::Send(v1::Batch batch) {
  v1::AgentMessage message;
  *message.mutable_batch() = std::move(batch);
  return Send(message);
}
bool ScriptedAgent::Send(v1::Definitions definitions) {
  v1::AgentMessage message;
  *message.mutable_definitions() = std::move(definitions);
  return Send(message);
}
bool ScriptedAgent::Send(v1::TraceEvents events) {
  v1::AgentMessage message;
  *message.mutable_trace_events() = std::move(events);
  return Send(message);
}

void ScriptedAgent::WritesDone() { stream_->WritesDone(); }

std::optional<v1::AggregatorMessage> ScriptedAgent::Receive() {
  grpc::ByteBuffer bytes;
  if (!stream_->Read(&bytes)) return std::nullopt;
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return std::nullopt;
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::AggregatorMessage message;
  if (!message.ParseFromString(text)) return std::nullopt;
  return message;
}

std::optional<v1::HelloAck> ScriptedAgent::ReceiveHelloAck() {
  while (auto message = Receive()) {
    if (message->has_hello_ack()) return message->hello_ack();
  }
  return std::nullopt;
}
std::optional<v1::Reject> ScriptedAgent::ReceiveReject() {
  while (auto message = Receive()) {
    if (message->has_reject()) return message->reject();
  }
  return std::nullopt;
}
std::optional<v1::Need> ScriptedAgent::ReceiveNeed() {
  while (auto message = Receive()) {
    if (message->has_need()) return message->need();
  }
  return std::nullopt;
}
std::optional<v1::Directives> ScriptedAgent::ReceiveDirectives() {
  while (auto message = Receive()) {
    if (message->has_directives()) return message->directives();
  }
  return std::nullopt;
}

bool ScriptedAgent::AwaitAck(uint64_t seq) {
  while (auto message = Receive()) {
    if (message->has_reject()) return false;
    if (message->has_ack() && message->ack().durable_seq() >= seq) return true;
  }
  return false;
}

std::optional<v1::HelloAck> ScriptedAgent::Register(const v1::Hello& hello) {
  if (!Send(hello)) return std::nullopt;
  return ReceiveHelloAck();
}

grpc::Status ScriptedAgent::Finish() {
  while (Receive()) {
  }
  finished_ = true;
  return stream_->Finish();
}

}  // namespace fleetblame::aggregator
