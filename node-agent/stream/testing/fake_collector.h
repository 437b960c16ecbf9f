// SPDX-License-Identifier: Apache-2.0
//
// An aggregator in the test's process: a real gRPC server whose every answer is up to the test.
// Keeps what it was sent, and by itself behaves: HelloAck, then an Ack for each batch in order.
//
// Threading: hooks run on gRPC's threads, one stream at a time unless a test opens more.
#ifndef NODE_AGENT_STREAM_TESTING_FAKE_COLLECTOR_H_
#define NODE_AGENT_STREAM_TESTING_FAKE_COLLECTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/collector.grpc.pb.h"

namespace fleetblame::agent {

class FakeCollector final : public v1::Collector::Service {
 public:
  using Peer = grpc::ServerReaderWriter<v1::AggregatorMessage, v1::AgentMessage>;

  FakeCollector();
  ~FakeCollector() override;

  // Listens on loopback; the same port again after Shutdown. `credentials` for TLS.
  void Start(
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials());
  void Shutdown();
  std::string address() const;

  // ---- how it behaves; set before Start or under Lock
  uint64_t dictionary_epoch = 1;
  uint64_t max_message_bytes = 4 << 20;
  uint64_t credit_bytes = 1 << 20;
  v1::Directives directives;
  // Called for each batch instead of taking it; returns whether it was handled. May write.
  std::function<bool(Peer*, const v1::Batch&)> on_batch;
  // Called for each Hello instead of answering it.
  std::function<bool(Peer*, const v1::Hello&)> on_hello;
  // Called for each message that is neither; for Definitions and trace events.
  std::function<void(Peer*, const v1::AgentMessage&)> on_other;
  // How a stream ends when the agent closed its side.
  grpc::Status end_status;

  // ---- what it saw
  // Batches taken, by seq, as first taken.
  std::map<uint64_t, v1::Batch> Taken() const;
  std::vector<v1::Hello> Hellos() const;
  std::vector<v1::Definitions> SeparateDefinitions() const;
  uint64_t durable_seq() const;
  uint64_t duplicates() const;
  uint64_t out_of_order() const;
  // Intents that a taken batch referred to without anyone having defined them.
  uint64_t undefined() const;
  bool WaitForDurable(uint64_t seq, absl::Duration timeout = absl::Seconds(20)) const;
  void set_durable_seq(uint64_t seq);
  // Forgets everything, as a new store does.
  void Forget(uint64_t new_epoch);

  // Takes a batch as a good aggregator does, with its Ack.
  void Take(Peer* stream, const v1::Batch& batch);
  static void SendReject(Peer* stream, uint64_t seq, v1::Reject::Action action,
                         absl::Duration retry_after = absl::ZeroDuration());

 private:
  grpc::Status Stream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AggregatorMessage, v1::AgentMessage>* stream) override;
  void Learn(uint64_t dictionary_id, const v1::Definitions& definitions);

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, v1::Batch> taken_;
  std::vector<v1::Hello> hellos_;
  std::vector<v1::Definitions> definitions_;
  std::map<std::pair<uint64_t, uint32_t>, v1::Intent> intents_;
  uint64_t durable_seq_ = 0;
  uint64_t duplicates_ = 0;
  uint64_t out_of_order_ = 0;
  uint64_t undefined_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_STREAM_TESTING_FAKE_COLLECTOR_H_
