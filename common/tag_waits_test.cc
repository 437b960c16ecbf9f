// SPDX-License-Identifier: Apache-2.0
#include "common/tag_waits.h"

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

v1::TagWaitRow Row(uint32_t device, uint32_t intent, uint64_t waits, uint64_t wait_ns) {
  v1::TagWaitRow row;
  row.set_device(device);
  row.set_set(1);
  row.set_hctx(0);
  row.set_kind(v1::TAG_KIND_HARDWARE);
  row.set_nr_tags(4);
  row.set_intent(intent);
  row.set_actor(7);
  row.set_waits(waits);
  row.set_ended_with_tag(waits);
  row.set_wait_ns(wait_ns);
  row.set_max_wait_ns(wait_ns);
  row.mutable_wait()->add_buckets(static_cast<uint32_t>(10 + intent % 3));
  row.mutable_wait()->add_counts(waits);
  return row;
}

v1::TagHolder Holder(uint32_t waiter, uint32_t holder, uint64_t tags, uint64_t samples) {
  v1::TagHolder h;
  h.set_waiter_device(waiter);
  h.set_set(1);
  h.set_kind(v1::TAG_KIND_HARDWARE);
  h.set_holder_device(holder);
  h.set_tags_sum(tags);
  h.set_samples(samples);
  h.set_nr_tags_sum(4 * samples);
  return h;
}

TEST(TagWaits, EqualRowsAddUp) {
  v1::TagWaits a;
  *a.add_rows() = Row(1, 1, 10, 1000);
  *a.add_rows() = Row(1, 2, 1, 10);
  v1::TagWaits b;
  *b.add_rows() = Row(1, 1, 5, 5000);
  *b.add_rows() = Row(2, 1, 1, 10);
  b.set_open_waits(3);
  b.set_source(v1::TAG_WAIT_SOURCE_KPROBE);
  MergeTagWaits(b, &a);
  ASSERT_EQ(a.rows_size(), 3);
  EXPECT_EQ(a.rows(0).waits(), 15u);
  EXPECT_EQ(a.rows(0).ended_with_tag(), 15u);
  EXPECT_EQ(a.rows(0).wait_ns(), 6000u);
  EXPECT_EQ(a.rows(0).max_wait_ns(), 5000u);
  ASSERT_EQ(a.rows(0).wait().counts_size(), 1);
  EXPECT_EQ(a.rows(0).wait().counts(0), 15u);
  EXPECT_EQ(a.open_waits(), 3u);
  EXPECT_EQ(a.source(), v1::TAG_WAIT_SOURCE_KPROBE);
}

TEST(TagWaits, RowsThatDifferInTheSizeOfThePoolStayApart) {
  v1::TagWaits a;
  *a.add_rows() = Row(1, 1, 10, 1000);
  v1::TagWaits b = a;
  b.mutable_rows(0)->set_nr_tags(8);
  MergeTagWaits(b, &a);
  b.mutable_rows(0)->clear_nr_tags();
  MergeTagWaits(b, &a);
  EXPECT_EQ(a.rows_size(), 3);
}

TEST(TagWaits, HoldersOfOnePoolKeepEqualSamples) {
  v1::TagWaits a;
  *a.add_holders() = Holder(1, 1, 100, 100);
  *a.add_holders() = Holder(1, 2, 300, 100);
  v1::TagWaits b;
  *b.add_holders() = Holder(1, 1, 50, 50);
  *b.add_holders() = Holder(1, 3, 150, 50);
  MergeTagWaits(b, &a);
  ASSERT_EQ(a.holders_size(), 3);
  uint64_t tags = 0;
  for (const v1::TagHolder& holder : a.holders()) {
    EXPECT_EQ(holder.samples(), 150u);
    EXPECT_EQ(holder.nr_tags_sum(), 600u);
    tags += holder.tags_sum();
  }
  EXPECT_EQ(tags, 600u) << "the shares add up to the whole pool";
}

TEST(TagWaits, ALaterWordOnASetHolds) {
  v1::TagWaits a;
  a.add_sets()->set_set(1);
  v1::TagWaits b = a;
  b.mutable_sets(0)->set_driver("mpt3sas");
  MergeTagWaits(b, &a);
  ASSERT_EQ(a.sets_size(), 1);
  EXPECT_EQ(a.sets(0).driver(), "mpt3sas");
}

TEST(TagWaits, TooManyRowsLoseTheirNamesBeforeTheirNumbers) {
  v1::TagWaits waits;
  uint64_t total = 0;
  for (uint32_t i = 1; i <= 100; ++i) {
    *waits.add_rows() = Row(1, i, i, i * 1000);
    total += i;
  }
  TagWaitLimits limits;
  limits.max_rows = 20;
  const TagWaitLosses losses = LimitTagWaits(limits, &waits);
  EXPECT_LE(waits.rows_size(), 20);
  EXPECT_EQ(losses.folded, 90u);
  EXPECT_EQ(losses.dropped, 0u);
  uint64_t sum = 0;
  bool longest = false;
  for (const v1::TagWaitRow& row : waits.rows()) {
    sum += row.waits();
    longest = longest || row.intent() == 100;
  }
  EXPECT_EQ(sum, total);
  EXPECT_TRUE(longest);
  EXPECT_TRUE(CheckTagWaits(waits, limits).ok());
}

TEST(TagWaits, BytesAreBounded) {
  v1::TagWaits waits;
  for (uint32_t i = 1; i <= 500; ++i) {
    *waits.add_rows() = Row(i, 1, 1, 1000);
    waits.add_disks()->set_device(i);
  }
  TagWaitLimits limits;
  limits.max_bytes = 4096;
  limits.max_disks = 1000;
  const TagWaitLosses losses = LimitTagWaits(limits, &waits);
  EXPECT_LE(waits.ByteSizeLong(), 4096u);
  EXPECT_GT(losses.dropped, 0u);
  EXPECT_EQ(waits.disks_size(), waits.rows_size());
}

TEST(TagWaits, OnlyWantedDisksWait) {
  v1::TagWaits waits;
  *waits.add_rows() = Row(1, 1, 1, 1000);
  *waits.add_rows() = Row(2, 1, 1, 1000);
  *waits.add_holders() = Holder(1, 2, 3, 1);
  *waits.add_holders() = Holder(2, 3, 3, 1);
  for (uint32_t disk : {1, 2, 3}) waits.add_disks()->set_device(disk);
  KeepWaiters([](uint32_t device) { return device == 1; }, &waits);
  ASSERT_EQ(waits.rows_size(), 1);
  EXPECT_EQ(waits.rows(0).device(), 1u);
  ASSERT_EQ(waits.holders_size(), 1);
  EXPECT_EQ(waits.holders(0).holder_device(), 2u) << "others may hold what a wanted disk lacks";
  EXPECT_EQ(waits.disks_size(), 2);
}

TEST(TagWaits, WhatCannotBeIsRefused) {
  v1::TagWaits waits;
  *waits.add_rows() = Row(1, 1, 1, 1000);
  EXPECT_TRUE(CheckTagWaits(waits).ok());
  waits.mutable_rows(0)->mutable_wait()->add_buckets(5);
  EXPECT_FALSE(CheckTagWaits(waits).ok());
  waits.mutable_rows(0)->mutable_wait()->add_counts(1);
  EXPECT_FALSE(CheckTagWaits(waits).ok()) << "buckets out of order";
  waits.mutable_rows(0)->clear_wait();
  EXPECT_TRUE(CheckTagWaits(waits).ok());
  waits.add_sets();
  EXPECT_FALSE(CheckTagWaits(waits).ok());
}

}  // namespace
}  // namespace fleetblame
