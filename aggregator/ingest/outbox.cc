// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/outbox.h"

#include <utility>

namespace fleetblame::aggregator {

void Outbox::Put(v1::HelloAck hello_ack) {
  ack_.reset();
  reject_.reset();
  need_.reset();
  directives_.reset();
  hello_ack_ = std::move(hello_ack);
}

v1::AggregatorMessage Outbox::Take() {
  v1::AggregatorMessage message;
  if (hello_ack_) {
    *message.mutable_hello_ack() = *std::exchange(hello_ack_, std::nullopt);
  } else if (ack_) {
    *message.mutable_ack() = *std::exchange(ack_, std::nullopt);
  } else if (reject_) {
    *message.mutable_reject() = *std::exchange(reject_, std::nullopt);
  } else if (need_) {
    *message.mutable_need() = *std::exchange(need_, std::nullopt);
  } else if (directives_) {
    *message.mutable_directives() = *std::exchange(directives_, std::nullopt);
  }
  return message;
}

}  // namespace fleetblame::aggregator
