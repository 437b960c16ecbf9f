// SPDX-License-Identifier: Apache-2.0
//
// One agent's stream without the network: the rules of collector.proto. Bytes come in through
// Receive, messages and the final status go out through TakeNext. docs/protocol.md tells the same
// story for readers.
//
//   waiting for Hello ──► registering ──► open ──► draining ──► closed
//                              ▲            │
//                              └── Hello ◄──┘  (after a Reject that said so)
//
// What must stay true:
//   * batches are taken in order of seq, each once; `unacked_` holds those between `durable_seq_`
//   and
//     `next_seq_`, oldest first.
//   * after a Reject nothing but the rejected seq is taken. Results of batches that were on their
//   way
//     to the disk then are told from later ones by `round_`.
//   * an Ack is sent only for what the store said is durable.
//   * what a peer can make this object hold is bounded by credit_bytes + max_message_bytes, and
//     counted in the ByteBudget.
//
// Threading: Receive and ReceiveEnd by one thread at a time (the reads of a stream are serial);
// everything else from any thread. `Io` is called without a lock held.
#ifndef AGGREGATOR_INGEST_AGENT_SESSION_H_
#define AGGREGATOR_INGEST_AGENT_SESSION_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "aggregator/ingest/batch_pool.h"
#include "aggregator/ingest/byte_budget.h"
#include "aggregator/ingest/committer.h"
#include "aggregator/ingest/deferred_work.h"
#include "aggregator/ingest/directive_source.h"
#include "aggregator/ingest/host_directory.h"
#include "aggregator/ingest/ingest_metrics.h"
#include "aggregator/ingest/limits.h"
#include "aggregator/ingest/outbox.h"
#include "aggregator/ingest/registrar.h"
#include "aggregator/ingest/stream_registry.h"
#include "aggregator/store/store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::aggregator {

// What all sessions share; everything outlives them.
struct SessionContext {
  IngestLimits limits;
  Store* store = nullptr;
  Committer* committer = nullptr;
  ByteBudget* budget = nullptr;
  BatchPool* pool = nullptr;
  DeferredWork* deferred = nullptr;
  StreamRegistry* registry = nullptr;
  Registrar* registrar = nullptr;
  const HostDirectory* hosts = nullptr;  // on the committer's thread only
  bool bind_hosts = false;               // a host is spoken for by a certificate that names it
  TraceHub* hub = nullptr;
  const DirectiveSource* directives = nullptr;
  IngestMetrics* metrics = nullptr;
};

class AgentSession final : public CommitClient,
                           public RegistrationClient,
                           public LiveStream,
                           public std::enable_shared_from_this<AgentSession> {
 public:
  // The network's side.
  class Io {
   public:
    virtual ~Io() = default;
    // The session wants the next message.
    virtual void ReadMore() = 0;
    // TakeNext has something.
    virtual void Wake() = 0;
    // The peer does not let the stream end: tear it down.
    virtual void Cancel() = 0;
  };

  // What the network knows of the other side.
  struct Peer {
    std::string address;
    std::vector<std::string> certificate_names;
  };
  AgentSession(const SessionContext* context, Peer peer, absl::Time now);

  // `io` may vanish at any time; the session then talks to nobody.
  void Start(std::weak_ptr<Io> io);
  // Takes one message; ReadMore is called when the next one may come.
  void Receive(grpc::ByteBuffer message);
  // The agent sends nothing any more. What it sent is still settled.
  void ReceiveEnd();
  // The stream is gone.
  void Closed();

  struct Next {
    std::optional<v1::AggregatorMessage> message;
    std::optional<grpc::Status> finish;  // only without a message; final
  };
  Next TakeNext();

  // ---- LiveStream
  void Supersede() override;
  void SendDirectives() override;
  void Tick(absl::Time now) override;
  void ShutDown() override;

  // ---- RegistrationClient
  std::optional<HostRecord> BeginRegistration(const v1::Hello& hello, absl::Time now) override;
  void EndRegistration(absl::StatusOr<HostDirectory::Registered> registered) override;

  // ---- CommitClient
  void OnCommitted(std::vector<Outcome> outcomes) override;
  void OnCommitFailed(std::vector<DecodedBatchPtr> batches, const absl::Status& error) override;

 private:
  enum class Phase { kAwaitHello, kRegistering, kOpen, kDraining, kClosed };

  struct Unacked {
    uint64_t seq = 0;
    uint64_t wire_bytes = 0;
    DecodedBatchPtr held;  // null while the committer has it
  };

  bool AwaitsHello() const;
  // ---- the steps of Receive; each returns whether to read on at once
  bool Process(const grpc::ByteBuffer& message, ByteBudget::Lease lease);
  bool HandleMalformed(const grpc::ByteBuffer& message);
  bool HandleHello(v1::Hello hello);
  void HandleBatch(DecodedBatchPtr decoded, ByteBudget::Lease lease);
  void HandleDefinitions(v1::Definitions definitions, ByteBudget::Lease lease);
  void HandleTraceEvents(v1::TraceEvents events);

  // ---- on the committer's thread
  bool Claim(const v1::Hello& hello, absl::Time now);
  void Refuse(const v1::Hello& hello, const absl::Status& why, prometheus::Counter* counter);
  void DefinitionsStored(const absl::Status& status);
  void SkipDone(uint64_t round, const absl::Status& status);

  enum class Admission { kTake, kTakeAfterSkip, kDiscard };
  Admission AdmitBatch(const v1::Batch& batch, uint64_t wire_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EnqueueBatch(DecodedBatchPtr batch, bool skip) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SubmitHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AcknowledgeUpTo(uint64_t durable_seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleOutcome(Outcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitForDefinitions(Outcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Refuses `seq`; everything from it on is forgotten.
  void RejectBatch(uint64_t seq, v1::Reject::Action action, const std::string& reason,
                   absl::Duration retry_after = absl::ZeroDuration())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutAck() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(grpc::StatusCode code, const std::string& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drain(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return phase_ == Phase::kDraining || phase_ == Phase::kClosed;
  }
  v1::HelloAck MakeHelloAck(uint64_t durable_seq) const;

  void ReadMore();
  void Wake();

  const SessionContext& context_;
  const Peer peer_;
  const absl::Time started_;
  const absl::Duration lifetime_;  // with jitter

  mutable absl::Mutex mu_;
  std::weak_ptr<Io> io_ ABSL_GUARDED_BY(mu_);
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kAwaitHello;
  Outbox outbox_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> finish_ ABSL_GUARDED_BY(mu_);
  absl::Time ended_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();

  // Set by registration.
  std::string host_id_ ABSL_GUARDED_BY(mu_);
  uint64_t spool_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t first_spooled_seq_ ABSL_GUARDED_BY(mu_) = 0;
  HostDirectory::Registered registered_ ABSL_GUARDED_BY(mu_);
  uint64_t directives_revision_ ABSL_GUARDED_BY(mu_) = 0;

  // Where the agent stands.
  uint64_t durable_seq_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_seq_ ABSL_GUARDED_BY(mu_) = 1;
  std::deque<Unacked> unacked_ ABSL_GUARDED_BY(mu_);
  uint64_t unacked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<uint64_t> unsettled_seq_ ABSL_GUARDED_BY(mu_);  // rejected, not yet seen again
  bool must_register_ ABSL_GUARDED_BY(mu_) = false;

  // While set, batches are held: definitions are missing, or the store is skipping ahead.
  bool holding_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time holding_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool skipping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t missing_definitions_ ABSL_GUARDED_BY(mu_) = 0;
  int fruitless_answers_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_AGENT_SESSION_H_
