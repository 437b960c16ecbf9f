// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/tag_wait_sums.h"

#include <gtest/gtest.h>

namespace fleetblame::aggregator {
namespace {

v1::TagSet Set(uint32_t number, const std::string& driver) {
  v1::TagSet set;
  set.set_set(number);
  set.set_driver(driver);
  set.set_host("host2");
  set.set_host_wide(true);
  return set;
}

v1::TagWaitRow* AddRow(v1::TagWaits* waits, uint32_t device, uint32_t set, uint64_t n) {
  v1::TagWaitRow* row = waits->add_rows();
  row->set_device(device);
  row->set_set(set);
  row->set_hctx(0);
  row->set_kind(v1::TAG_KIND_HARDWARE);
  row->set_nr_tags(4);
  row->set_source(v1::TAG_WAIT_SOURCE_FENTRY);
  row->set_intent(7);
  row->set_actor(8);
  row->set_waits(n);
  row->set_rounds(n + 1);
  row->set_wait_ns(n * 1000);
  row->set_max_wait_ns(n * 10);
  row->mutable_wait()->add_buckets(3);
  row->mutable_wait()->add_counts(n);
  row->set_ended_with_tag(n);
  row->set_active_sum(n * 2);
  row->set_active_samples(n);
  row->set_active_max(n);
  return row;
}

void AddHolder(v1::TagWaits* waits, uint32_t waiter, uint32_t set, uint32_t holder, uint64_t tags,
               uint64_t samples) {
  v1::TagHolder* h = waits->add_holders();
  h->set_waiter_device(waiter);
  h->set_set(set);
  h->set_kind(v1::TAG_KIND_HARDWARE);
  h->set_holder_device(holder);
  h->set_tags_sum(tags);
  h->set_tags_max(tags / samples);
  h->set_samples(samples);
  h->set_nr_tags_sum(4 * samples);
}

TEST(TagWaitSums, EmptyIsEmpty) {
  TagWaitSums sums;
  EXPECT_TRUE(sums.empty());
  // "Looked, and saw nothing" is something.
  v1::TagWaits looked;
  looked.set_source(v1::TAG_WAIT_SOURCE_KPROBE);
  sums.Add(looked);
  EXPECT_FALSE(sums.empty());
  v1::TagWaits out = sums.Finish();
  EXPECT_EQ(out.source(), v1::TAG_WAIT_SOURCE_KPROBE);
  EXPECT_EQ(out.rows_size(), 0);
  EXPECT_FALSE(out.has_open_waits());
  EXPECT_TRUE(sums.empty());
}

TEST(TagWaitSums, AddsUpWhatHasTheSameKeyWhateverItsSetIsCalled) {
  v1::TagWaits first;
  *first.add_sets() = Set(1, "megaraid_sas");
  *first.add_sets() = Set(2, "ahci");
  AddRow(&first, 1, 1, 5);
  AddRow(&first, 1, 2, 1);
  first.set_open_waits(3);
  v1::TagWaits second;
  *second.add_sets() = Set(9, "megaraid_sas");  // another number, as after a restart of the agent
  AddRow(&second, 1, 9, 7);
  AddRow(&second, 1, 9, 2)->set_nr_tags(8);
  second.set_open_waits(0);
  TagWaitSums sums;
  sums.Add(first);
  sums.Add(second);
  v1::TagWaits out = sums.Finish();
  ASSERT_EQ(out.sets_size(), 2);
  ASSERT_EQ(out.rows_size(), 3);
  EXPECT_EQ(out.open_waits(), 0u);
  EXPECT_TRUE(out.has_open_waits());
  uint32_t megaraid = 0;
  for (const auto& set : out.sets()) {
    if (set.driver() == "megaraid_sas") megaraid = set.set();
  }
  for (const auto& row : out.rows()) {
    if (row.set() != megaraid || row.nr_tags() != 4) continue;
    EXPECT_EQ(row.waits(), 12u);
    EXPECT_EQ(row.rounds(), 14u);
    EXPECT_EQ(row.wait_ns(), 12'000u);
    EXPECT_EQ(row.max_wait_ns(), 70u);
    EXPECT_EQ(row.ended_with_tag(), 12u);
    EXPECT_EQ(row.active_sum(), 24u);
    EXPECT_EQ(row.active_max(), 7u);
    ASSERT_EQ(row.wait().buckets_size(), 1);
    EXPECT_EQ(row.wait().counts(0), 12u);
    return;
  }
  FAIL() << out.DebugString();
}

TEST(TagWaitSums, SumOfSumsIsTheSum) {
  v1::TagWaits parts[3];
  for (uint32_t i = 0; i < 3; ++i) {
    *parts[i].add_sets() = Set(i + 1, "x");
    AddRow(&parts[i], 1, i + 1, i + 1);
    AddHolder(&parts[i], 1, i + 1, 1 + i, 30, 10);
  }
  TagWaitSums all, left, both;
  for (const auto& p : parts) all.Add(p);
  left.Add(parts[0]);
  left.Add(parts[1]);
  both.Add(left.Finish());
  both.Add(parts[2]);
  EXPECT_EQ(all.Finish().SerializeAsString(), both.Finish().SerializeAsString());
}

TEST(TagWaitSums, UnknownIsNotZero) {
  v1::TagWaits waits;
  v1::TagWaitRow* row = waits.add_rows();
  row->set_waits(1);
  row->set_set(5);  // never defined
  row = waits.add_rows();
  row->set_waits(1);
  row->set_hctx(0);
  row->set_nr_tags(0);
  TagWaitSums sums;
  sums.Add(waits);
  v1::TagWaits out = sums.Finish();
  ASSERT_EQ(out.rows_size(), 2);
  EXPECT_NE(out.rows(0).has_hctx(), out.rows(1).has_hctx());
  EXPECT_NE(out.rows(0).has_nr_tags(), out.rows(1).has_nr_tags());
  EXPECT_EQ(out.rows(0).set(), 0u);
}

// sdb held 3 of 4 tags in the first window and none in the second.
TEST(TagWaitSums, AHolderThatIsNotNamedHeldNothing) {
  v1::TagWaits first;
  *first.add_sets() = Set(1, "x");
  AddHolder(&first, 1, 1, 1, 10, 10);
  AddHolder(&first, 1, 1, 2, 30, 10);
  v1::TagWaits second;
  *second.add_sets() = Set(1, "x");
  AddHolder(&second, 1, 1, 1, 120, 30);
  TagWaitSums sums;
  sums.Add(first);
  sums.Add(second);
  v1::TagWaits out = sums.Finish();
  ASSERT_EQ(out.holders_size(), 2);
  for (const auto& h : out.holders()) {
    EXPECT_EQ(h.samples(), 40u);
    EXPECT_EQ(h.nr_tags_sum(), 160u);
    EXPECT_EQ(h.tags_sum(), h.holder_device() == 1 ? 130u : 30u);
    EXPECT_EQ(h.tags_max(), h.holder_device() == 1 ? 4u : 3u);
  }
}

TEST(TagWaitSums, FoldingKeepsTheSumsAndTheLongest) {
  TagWaitSums sums;
  v1::TagWaits waits;
  uint64_t total = 0;
  for (uint32_t i = 1; i <= 1000; ++i) {
    v1::TagWaitRow* row = AddRow(&waits, 1, 0, i);
    row->set_intent(i);
    row->set_hctx(i % 64);
    row->set_nr_tags(1 + i % 32);
    total += i;
  }
  sums.Add(waits);
  TagWaitSums::Limits limits;
  limits.rows = 40;
  v1::TagWaits out = sums.Finish(limits);
  EXPECT_LE(out.rows_size(), 40);
  uint64_t kept = 0, hist = 0;
  bool longest = false;
  for (const auto& row : out.rows()) {
    kept += row.waits();
    for (uint64_t n : row.wait().counts()) hist += n;
    if (row.intent() == 1000) longest = row.waits() == 1000;
  }
  EXPECT_EQ(kept, total);
  EXPECT_EQ(hist, total);
  EXPECT_TRUE(longest);
}

TEST(TagWaitSums, ManyHoldersBecomeOne) {
  v1::TagWaits waits;
  for (uint32_t d = 1; d <= 100; ++d) AddHolder(&waits, 1, 0, d, d * 10, 10);
  TagWaitSums sums;
  sums.Add(waits);
  v1::TagWaits out = sums.Finish();
  uint64_t tags = 0;
  for (const auto& h : out.holders()) tags += h.tags_sum();
  EXPECT_EQ(out.holders_size(), 65);
  EXPECT_EQ(out.holders(0).holder_device(), 0u);
  EXPECT_EQ(tags, 10u * 100 * 101 / 2);
}

TEST(TagWaitSums, SumsDoNotWrap) {
  v1::TagWaits waits;
  AddRow(&waits, 1, 0, 1)->set_wait_ns(UINT64_MAX - 1);
  TagWaitSums sums;
  sums.Add(waits);
  sums.Add(waits);
  EXPECT_EQ(sums.Finish().rows(0).wait_ns(), UINT64_MAX);
}

}  // namespace
}  // namespace fleetblame::aggregator
