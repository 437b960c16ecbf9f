// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/testing/fake_store.h"

#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
using Outcome = AppendResult::Outcome;

v1::RowBlock OneRow(uint32_t intent, uint64_t bytes) {
  RowBlockBuilder builder;
  BlockRow row;
  row.dirtier_intent = intent;
  row.device = 1;
  row.operation = v1::OPERATION_WRITE;
  row.confidence = v1::CONFIDENCE_EXACT;
  row.ios = 1;
  row.bytes = bytes;
  builder.Add(row);
  return builder.Finish();
}

v1::Batch BatchOf(uint64_t seq, uint64_t start_s) {
  v1::Batch batch;
  batch.set_seq(seq);
  batch.set_spool_epoch(1);
  batch.set_dictionary_id(9);
  batch.mutable_window()->set_start_boot_ns(start_s * kSecond);
  batch.mutable_window()->set_end_boot_ns((start_s + 10) * kSecond);
  batch.mutable_window()->set_realtime_offset_ns(1000 * kSecond);
  return batch;
}

uint64_t BytesIn(const Store& store, HostNumber host, uint64_t start, uint64_t end, int* blocks) {
  uint64_t bytes = 0;
  *blocks = 0;
  EXPECT_TRUE(store.NewReadView()
                  ->ScanHosts({{host}}, {start, end, Level::k1d},
                              [&](const ScannedBlock& block) {
                                ++*blocks;
                                RowBlockReader reader(*block.rows);
                                BlockRow row;
                                while (reader.Next(&row)) bytes += row.bytes;
                                return true;
                              })
                  .ok());
  return bytes;
}

TEST(FakeStoreTest, AppendsOnceAndInOrder) {
  FakeStore store;
  HostRecord record;
  record.host_id = "a";
  HostNumber host = *store.UpsertHost(record);
  v1::RowBlock rows = OneRow(5, 100);
  v1::Batch batch = BatchOf(1, 0);
  IncomingBatch in{host, &batch, &rows};

  auto first = store.Append({&in, 1});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)[0].outcome, Outcome::kNeedDefinitions);
  EXPECT_EQ((*first)[0].need.intents(0), 5u);
  EXPECT_EQ((*first)[0].need.devices(0), 1u);

  v1::Definitions definitions;
  definitions.set_dictionary_id(9);
  (*definitions.mutable_intents())[5].set_intent_id("0123456789abcdef");
  (*definitions.mutable_devices())[1].set_name("sda");
  ASSERT_TRUE(store.AddDefinitions(host, definitions).ok());
  EXPECT_EQ((*store.Append({&in, 1}))[0].outcome, Outcome::kDurable);
  EXPECT_EQ((*store.Append({&in, 1}))[0].outcome, Outcome::kDuplicate);
  batch = BatchOf(3, 20);
  EXPECT_EQ((*store.Append({&in, 1}))[0].outcome, Outcome::kOutOfOrder);
  EXPECT_EQ(*store.DurableSeq(host, 1), 1u);

  int blocks;
  EXPECT_EQ(BytesIn(store, host, 1000 * kSecond, 1010 * kSecond, &blocks), 100u);
  EXPECT_EQ(BytesIn(store, host, 1010 * kSecond, 1020 * kSecond, &blocks), 0u);

  store.FailWrites(absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(store.Append({&in, 1}).ok());
}

TEST(FakeStoreTest, RollupsCoverEachRowOnce) {
  FakeStore store;
  HostRecord record;
  record.host_id = "a";
  HostNumber host = *store.UpsertHost(record);
  // Twelve windows of 10 s that do not begin on a minute.
  for (uint64_t i = 0; i < 12; ++i) {
    BlockRow row;
    row.bytes = 1;
    store.AddRows(host, (600 + 3 + i * 10) * kSecond, (600 + 13 + i * 10) * kSecond, {row});
  }
  int blocks;
  EXPECT_EQ(BytesIn(store, host, 600 * kSecond, 840 * kSecond, &blocks), 12u);
  EXPECT_EQ(blocks, 12);
  store.EnableRollups(true);
  EXPECT_EQ(BytesIn(store, host, 600 * kSecond, 840 * kSecond, &blocks), 12u);
  EXPECT_EQ(blocks, 3);
  EXPECT_EQ(BytesIn(store, host, 630 * kSecond, 840 * kSecond, &blocks), 10u);
}

}  // namespace
}  // namespace fleetblame::aggregator
