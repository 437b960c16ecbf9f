// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/testing/fake_collector.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "node-agent/compact/row_codec.h"

namespace fleetblame::agent {

FakeCollector::FakeCollector() = default;
FakeCollector::~FakeCollector() { Shutdown(); }

void FakeCollector::Start(std::shared_ptr<grpc::ServerCredentials> credentials) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), std::move(credentials), &port_);
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(64 << 20);
  server_ = builder.BuildAndStart();
}

void FakeCollector::Shutdown() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  server_->Wait();
  server_.reset();
}

std::string FakeCollector::address() const { return absl::StrCat("127.0.0.1:", port_); }

grpc::Status FakeCollector::Stream(
    grpc::ServerContext*,
    grpc::ServerReaderWriter<v1::AggregatorMessage, v1::AgentMessage>* stream) {
  v1::AgentMessage message;
  while (stream->Read(&message)) {
    if (message.has_hello()) {
      {
        absl::MutexLock lock(&mutex_);
        hellos_.push_back(message.hello());
      }
      if (on_hello && on_hello(stream, message.hello())) continue;
      v1::AggregatorMessage answer;
      v1::HelloAck* ack = answer.mutable_hello_ack();
      ack->set_durable_seq(durable_seq());
      ack->set_dictionary_epoch(dictionary_epoch);
      ack->set_max_message_bytes(max_message_bytes);
      ack->set_credit_bytes(credit_bytes);
      *ack->mutable_directives() = directives;
      stream->Write(answer);
    } else if (message.has_batch()) {
      if (on_batch && on_batch(stream, message.batch())) continue;
      Take(stream, message.batch());
    } else {
      if (message.has_definitions()) {
        absl::MutexLock lock(&mutex_);
        definitions_.push_back(message.definitions());
        Learn(message.definitions().dictionary_id(), message.definitions());
      }
      if (on_other) on_other(stream, message);
    }
  }
  return end_status;
}

void FakeCollector::Learn(uint64_t dictionary_id, const v1::Definitions& definitions) {
  for (const auto& [number, intent] : definitions.intents()) {
    intents_[{dictionary_id, number}] = intent;
  }
}

void FakeCollector::Take(Peer* stream, const v1::Batch& batch) {
  v1::AggregatorMessage answer;
  {
    absl::MutexLock lock(&mutex_);
    if (batch.seq() <= durable_seq_) {
      ++duplicates_;
    } else if (batch.seq() != durable_seq_ + 1 && durable_seq_ != 0) {
      ++out_of_order_;
      return;
    } else {
      Learn(batch.dictionary_id(), batch.definitions());
      const auto refs = CollectRefs(batch);
      if (refs.ok()) {
        for (const uint32_t number : refs->numbers[0]) {
          if (!intents_.contains({batch.dictionary_id(), number})) ++undefined_;
        }
      }
      taken_[batch.seq()] = batch;
      durable_seq_ = batch.seq();
    }
    answer.mutable_ack()->set_durable_seq(durable_seq_);
  }
  answer.mutable_ack()->set_credit_bytes(credit_bytes);
  stream->Write(answer);
}

void FakeCollector::SendReject(Peer* stream, uint64_t seq, v1::Reject::Action action,
                               absl::Duration retry_after) {
  v1::AggregatorMessage answer;
  answer.mutable_reject()->set_seq(seq);
  answer.mutable_reject()->set_action(action);
  answer.mutable_reject()->set_retry_after_ns(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(retry_after)));
  answer.mutable_reject()->set_reason("as the test wants it");
  stream->Write(answer);
}

std::map<uint64_t, v1::Batch> FakeCollector::Taken() const {
  absl::MutexLock lock(&mutex_);
  return taken_;
}
std::vector<v1::Hello> FakeCollector::Hellos() const {
  absl::MutexLock lock(&mutex_);
  return hellos_;
}
std::vector<v1::Definitions> FakeCollector::SeparateDefinitions() const {
  absl::MutexLock lock(&mutex_);
  return definitions_;
}
uint64_t FakeCollector::durable_seq() const {
  absl::MutexLock lock(&mutex_);
  return durable_seq_;
}
uint64_t FakeCollector::duplicates() const {
  absl::MutexLock lock(&mutex_);
  return duplicates_;
}
uint64_t FakeCollector::out_of_order() const {
  absl::MutexLock lock(&mutex_);
  return out_of_order_;
}
uint64_t FakeCollector::undefined() const {
  absl::MutexLock lock(&mutex_);
  return undefined_;
}
void FakeCollector::set_durable_seq(uint64_t seq) {
  absl::MutexLock lock(&mutex_);
  durable_seq_ = seq;
}

bool FakeCollector::WaitForDurable(uint64_t seq, absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  while (durable_seq() < seq) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

void FakeCollector::Forget(uint64_t new_epoch) {
  absl::MutexLock lock(&mutex_);
  taken_.clear();
  intents_.clear();
  definitions_.clear();
  durable_seq_ = 0;
  dictionary_epoch = new_epoch;
}

}  // namespace fleetblame::agent
