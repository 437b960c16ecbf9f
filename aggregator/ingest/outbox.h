// SPDX-License-Identifier: Apache-2.0
//
// What is to be sent to one agent. Newer news replace older ones of the same kind, so that the box
// stays small however slowly the agent reads: at most one HelloAck, Ack, Need and Directives wait,
// and one Reject, since nothing is taken after a Reject until it is settled.
//
// Threading: guarded by its owner.
#ifndef AGGREGATOR_INGEST_OUTBOX_H_
#define AGGREGATOR_INGEST_OUTBOX_H_

#include <optional>

#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::aggregator {

class Outbox {
 public:
  // Forgets everything else: the agent starts over.
  void Put(v1::HelloAck hello_ack);
  void Put(const v1::Ack& ack) { ack_ = ack; }
  void Put(v1::Need need) { need_ = std::move(need); }
  void Put(v1::Reject reject) { reject_ = std::move(reject); }
  void Put(v1::Directives directives) { directives_ = std::move(directives); }

  bool empty() const { return !hello_ack_ && !ack_ && !need_ && !reject_ && !directives_; }

  // The next message; HelloAck first, Ack before Reject. The box must not be empty.
  v1::AggregatorMessage Take();

 private:
  std::optional<v1::HelloAck> hello_ack_;
  std::optional<v1::Ack> ack_;
  std::optional<v1::Reject> reject_;
  std::optional<v1::Need> need_;
  std::optional<v1::Directives> directives_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_OUTBOX_H_
