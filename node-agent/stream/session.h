// SPDX-License-Identifier: Apache-2.0
//
// One stream's side of the protocol of collector.proto, without the network: what to say next, and
// what to make of what was heard. The spool holds what must survive a session; this holds what
// does not.
//
//   Hello ──► wait for HelloAck ──► send in order of seq while credits last ──► Ack frees
//                ▲                        │
//                └── Reject(REGISTER) ────┘     other Rejects: back to the rejected seq
//
// Never frees what was not acknowledged: an Ack for a batch that this session did not send is a
// protocol error and ends it.
//
// Threading: one thread. Errors: the session is over and is to be closed; the status says why.
#ifndef NODE_AGENT_STREAM_SESSION_H_
#define NODE_AGENT_STREAM_SESSION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "node-agent/dictionary/dictionary.h"
#include "node-agent/spool/spool.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/control.pb.h"

namespace fleetblame::agent {

// What Hello says of this host.
struct HelloIdentity {
  std::string host_id;
  std::string hostname;
  std::string boot_id;
  std::string kernel_release;
  std::string tracer;
  std::map<std::string, std::string> labels;
};

// Counts since the agent began; kept across sessions.
struct SessionCounters {
  uint64_t batches_sent = 0;
  uint64_t batch_bytes_sent = 0;
  uint64_t rows_sent = 0;
  uint64_t definitions_sent = 0;
  uint64_t acks = 0;
  uint64_t needs = 0;
  uint64_t rejects_retry = 0;
  uint64_t rejects_split = 0;
  uint64_t rejects_drop = 0;
  uint64_t rejects_register = 0;
  uint64_t protocol_errors = 0;
  uint64_t trace_events_sent = 0;
  uint64_t durable_seq = 0;
  int64_t clock_skew_ns = 0;  // aggregator minus host, at the last HelloAck
};

class Session {
 public:
  struct Hooks {
    // New directives; the session has checked their revision.
    std::function<void(const v1::Directives&)> on_directives;
    // Trace events that wait to be sent; may be absent.
    std::function<std::optional<v1::TraceEvents>()> take_trace_events;
  };

  // All must outlive this object.
  Session(const HelloIdentity& identity, Spool* spool, Dictionary* dictionary, Hooks hooks,
          SessionCounters* counters);

  // The next message to send, if there is one to be sent now.
  std::optional<v1::AgentMessage> NextMessage(absl::Time now);
  // When to ask again although nothing was heard or spooled.
  absl::Time WakeTime() const { return pause_until_; }

  absl::Status Receive(const v1::AggregatorMessage& message, absl::Time now);

  // Whether HelloAck came.
  bool established() const { return state_ == State::kOpen; }
  // Whether anything waits for an Ack.
  bool idle() const { return in_flight_.empty(); }
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }
  bool single_in_flight() const { return in_flight_.size() == 1; }

  // The highest revision of directives seen, and from which aggregator; carried from session to
  // session.
  struct DirectiveMark {
    uint64_t dictionary_epoch = 0;
    uint64_t revision = 0;
  };
  DirectiveMark directive_mark() const { return directive_mark_; }
  void set_directive_mark(DirectiveMark mark) { directive_mark_ = mark; }

 private:
  enum class State { kHello, kAwaitAck, kOpen };
  // A definition that a batch carries: dictionary, kind and number.
  using DefinitionKey = std::tuple<uint64_t, int, uint32_t>;
  struct InFlight {
    uint64_t seq = 0;
    uint64_t bytes = 0;
    DictionaryRefs refs;
    std::vector<DefinitionKey> carried;
  };
  struct Prepared {
    v1::AgentMessage message;
    uint64_t bytes = 0;
    DictionaryRefs refs;
    std::vector<DefinitionKey> carried;
  };

  v1::AgentMessage MakeHello() const;
  absl::Status OnHelloAck(const v1::HelloAck& ack);
  absl::Status OnAck(const v1::Ack& ack);
  absl::Status OnNeed(const v1::Need& need);
  absl::Status OnReject(const v1::Reject& reject, absl::Time now);
  void OnDirectives(const v1::Directives& directives);

  void Rewind(uint64_t seq);
  // Bookkeeping of what is in flight.
  void Push(InFlight batch);
  void Drop(const InFlight& batch);
  bool WouldRepeatDefinitions() const;
  // False when that has to wait (the disk does not let us).
  bool SplitOrSetAside(uint64_t seq, const std::string& reason);
  bool Prepare();
  void QueueDefinitions(v1::Definitions definitions);
  std::optional<v1::AgentMessage> NextBatch();

  const HelloIdentity& identity_;
  Spool* const spool_;
  Dictionary* const dictionary_;
  const Hooks hooks_;
  SessionCounters* const counters_;

  State state_ = State::kHello;
  uint64_t max_message_bytes_ = 0;
  uint64_t credit_bytes_ = 0;
  uint64_t next_seq_ = 0;
  uint64_t durable_seq_ = 0;
  std::deque<InFlight> in_flight_;
  uint64_t in_flight_bytes_ = 0;
  std::map<DefinitionKey, int> carried_;  // by how many batches in flight
  std::optional<Prepared> prepared_;      // next_seq_, waiting for credits
  std::deque<v1::AgentMessage> definitions_;
  absl::Time pause_until_ = absl::InfinitePast();
  int registers_without_ack_ = 0;
  absl::Time last_retain_ = absl::InfinitePast();
  DirectiveMark directive_mark_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_STREAM_SESSION_H_
