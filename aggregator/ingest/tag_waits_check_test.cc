// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/tag_waits_check.h"

#include <gtest/gtest.h>

#include <functional>

namespace fleetblame::aggregator {
namespace {

v1::TagWaits Sample() {
  v1::TagWaits waits;
  waits.add_sets()->set_set(1);
  v1::TagDisk* disk = waits.add_disks();
  disk->set_device(1);
  disk->set_set(1);
  disk->set_scheduler("none");
  v1::TagWaitRow* row = waits.add_rows();
  row->set_device(1);
  row->set_set(1);
  row->set_kind(v1::TAG_KIND_HARDWARE);
  row->set_waits(2);
  row->mutable_wait()->add_buckets(4);
  row->mutable_wait()->add_counts(2);
  v1::TagHolder* holder = waits.add_holders();
  holder->set_waiter_device(1);
  holder->set_set(1);
  holder->set_samples(1);
  waits.set_source(v1::TAG_WAIT_SOURCE_FENTRY);
  return waits;
}

std::string Refusal(const std::function<void(v1::TagWaits&)>& spoil) {
  v1::TagWaits waits = Sample();
  spoil(waits);
  absl::Status status = CheckTagWaits(&waits);
  if (status.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST(TagWaitsCheck, TakesWhatIsRight) {
  v1::TagWaits waits = Sample();
  const std::string before = waits.SerializeAsString();
  EXPECT_TRUE(CheckTagWaits(&waits).ok());
  EXPECT_EQ(waits.SerializeAsString(), before);
  EXPECT_TRUE(NamesDefinitions(waits));
  v1::TagWaits nothing;
  EXPECT_TRUE(CheckTagWaits(&nothing).ok());
  EXPECT_FALSE(NamesDefinitions(nothing));
}

TEST(TagWaitsCheck, SaysWhatIsWrong) {
  using W = v1::TagWaits;
  EXPECT_EQ(Refusal([](W& w) { w.add_sets()->set_set(1); }), "tag_waits: set 1 is defined twice");
  EXPECT_EQ(Refusal([](W& w) { w.add_sets(); }),
            "tag_waits: set 0 means none and cannot be defined");
  EXPECT_EQ(Refusal([](W& w) { w.mutable_sets(0)->set_model(std::string(300, 'x')); }),
            "tag_waits: a text of set 1 has 300 bytes; at most 256");
  EXPECT_EQ(Refusal([](W& w) { w.mutable_disks(0)->set_scheduler(std::string(300, 'x')); }),
            "tag_waits: name of a scheduler too long");
  EXPECT_EQ(Refusal([](W& w) { w.mutable_rows(0)->mutable_wait()->add_counts(1); }),
            "tag_waits: a histogram has 1 buckets and 2 counts");
  EXPECT_EQ(Refusal([](W& w) { w.mutable_rows(0)->mutable_wait()->set_buckets(0, 194); }),
            "tag_waits: a histogram has a bucket 194; they end at 193");
  EXPECT_EQ(Refusal([](W& w) {
              w.mutable_rows(0)->mutable_wait()->add_buckets(4);
              w.mutable_rows(0)->mutable_wait()->add_counts(1);
            }),
            "tag_waits: buckets of a histogram are not increasing");
}

TEST(TagWaitsCheck, SetsThatAreNotToldAreUnknown) {
  v1::TagWaits waits = Sample();
  waits.mutable_rows(0)->set_set(2);
  waits.mutable_disks(0)->set_set(3);
  ASSERT_TRUE(CheckTagWaits(&waits).ok());
  EXPECT_EQ(waits.rows(0).set(), 0u);
  EXPECT_EQ(waits.disks(0).set(), 0u);
  EXPECT_EQ(waits.holders(0).set(), 1u);
  waits.clear_sets();
  ASSERT_TRUE(CheckTagWaits(&waits).ok());
  EXPECT_EQ(waits.holders(0).set(), 0u);
}

TEST(TagWaitsCheck, KeepsItsBounds) {
  using W = v1::TagWaits;
  EXPECT_EQ(Refusal([](W& w) {
              for (int i = 0; i < 1024; ++i) w.add_rows();
            }),
            "tag_waits: 1025 rows; at most 1024");
  EXPECT_EQ(Refusal([](W& w) {
              for (int i = 0; i < 1024; ++i) w.add_holders();
            }),
            "tag_waits: 1025 holders; at most 1024");
  EXPECT_EQ(Refusal([](W& w) {
              for (int i = 0; i < 256; ++i) w.add_disks()->set_device(1);
            }),
            "tag_waits: 257 disks; at most 256");
  EXPECT_EQ(Refusal([](W& w) {
              for (uint32_t i = 2; i < 66; ++i) w.add_sets()->set_set(i);
            }),
            "tag_waits: 65 sets; at most 64");
  EXPECT_NE(Refusal([](W& w) {
              for (int i = 0; i < 1000; ++i) {
                v1::TagWaitRow* row = w.add_rows();
                for (uint32_t b = 0; b < 190; ++b) {
                  row->mutable_wait()->add_buckets(b);
                  row->mutable_wait()->add_counts(1);
                }
              }
            }).find(" bytes; at most 262144"),
            std::string::npos);
}

TEST(TagWaitsCheck, UnknownWordsOfNewerAgentsAreUnspecified) {
  v1::TagWaits waits = Sample();
  waits.set_source(static_cast<v1::TagWaitSource>(77));
  waits.mutable_rows(0)->set_kind(static_cast<v1::TagKind>(78));
  waits.mutable_rows(0)->set_source(static_cast<v1::TagWaitSource>(79));
  waits.mutable_holders(0)->set_kind(static_cast<v1::TagKind>(-1));
  ASSERT_TRUE(CheckTagWaits(&waits).ok());
  EXPECT_EQ(waits.source(), v1::TAG_WAIT_SOURCE_UNSPECIFIED);
  EXPECT_EQ(waits.rows(0).kind(), v1::TAG_KIND_UNSPECIFIED);
  EXPECT_EQ(waits.rows(0).source(), v1::TAG_WAIT_SOURCE_UNSPECIFIED);
  EXPECT_EQ(waits.holders(0).kind(), v1::TAG_KIND_UNSPECIFIED);
}

}  // namespace
}  // namespace fleetblame::aggregator
