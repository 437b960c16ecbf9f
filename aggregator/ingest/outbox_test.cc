// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/outbox.h"

#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

v1::Ack AckOf(uint64_t seq) {
  v1::Ack ack;
  ack.set_durable_seq(seq);
  return ack;
}

TEST(Outbox, NewestAckOnlyAndInOrderOfUrgency) {
  Outbox box;
  EXPECT_TRUE(box.empty());
  v1::Directives directives;
  directives.set_revision(4);
  box.Put(directives);
  box.Put(v1::Reject());
  for (uint64_t seq = 1; seq <= 1000; ++seq) box.Put(AckOf(seq));
  EXPECT_EQ(box.Take().ack().durable_seq(), 1000u);
  EXPECT_TRUE(box.Take().has_reject());
  EXPECT_EQ(box.Take().directives().revision(), 4u);
  EXPECT_TRUE(box.empty());
}

TEST(Outbox, HelloAckForgetsTheRest) {
  Outbox box;
  box.Put(AckOf(3));
  box.Put(v1::Need());
  box.Put(v1::HelloAck());
  EXPECT_TRUE(box.Take().has_hello_ack());
  EXPECT_TRUE(box.empty());
}

}  // namespace
}  // namespace fleetblame::aggregator
