// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/row_merger.h"

#include "gtest/gtest.h"

namespace fleetblame::agent {
namespace {

BlockRow MakeRow(uint32_t intent, uint32_t file, uint64_t bytes) {
  BlockRow row;
  row.dirtier_intent = intent;
  row.issuer_intent = intent + 1000;
  row.dirtier_actor = intent % 7 + 1;
  row.issuer_actor = 1;
  row.device = 1;
  row.file = file;
  row.operation = v1::OPERATION_WRITE;
  row.confidence = v1::CONFIDENCE_EXACT;
  row.ios = 1;
  row.bytes = bytes;
  row.wait.Add(3, 1);
  row.io.Add(5, 1);
  return row;
}

TEST(RowMergerTest, EqualKeysAddUp) {
  RowMerger merger;
  merger.Add(MakeRow(1, 0, 100));
  merger.Add(MakeRow(1, 0, 50));
  BlockRow other = MakeRow(1, 0, 7);
  other.confidence = v1::CONFIDENCE_INODE;
  merger.Add(other);
  const std::vector<BlockRow> rows = merger.Take();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].bytes, 150u);
  EXPECT_EQ(rows[0].ios, 2u);
  EXPECT_EQ(rows[0].wait.total(), 2u);
  EXPECT_EQ(rows[0].io.entries()[0].second, 2u);
  EXPECT_EQ(rows[1].bytes, 7u);
  EXPECT_EQ(merger.size(), 0u);
}

TEST(RowMergerTest, LimitKeepsSumsAndTheLargest) {
  RowMerger merger;
  uint64_t bytes = 0;
  for (uint32_t n = 1; n <= 1000; ++n) {
    merger.Add(MakeRow(n % 100 + 1, n, n));
    bytes += n;
  }
  EXPECT_GT(merger.Limit(250), 0u);
  EXPECT_LE(merger.size(), 250u);
  uint64_t sum = 0;
  uint64_t ios = 0;
  uint64_t histogram = 0;
  bool largest = false;
  for (const BlockRow& row : merger.Take()) {
    sum += row.bytes;
    ios += row.ios;
    histogram += row.wait.total();
    largest = largest || (row.file == 1000 && row.bytes == 1000);
  }
  EXPECT_EQ(sum, bytes);
  EXPECT_EQ(ios, 1000u);
  EXPECT_EQ(histogram, 1000u);
  EXPECT_TRUE(largest);
}

TEST(RowMergerTest, AnyLimitIsKept) {
  for (size_t limit = 2; limit < 200; limit += 3) {
    RowMerger merger;
    for (uint32_t n = 1; n <= 500; ++n) merger.Add(MakeRow(n % 100 + 1, n, n % 37));
    merger.Limit(limit);
    EXPECT_LE(merger.size(), limit);
    uint64_t ios = 0;
    for (const BlockRow& row : merger.Take()) ios += row.ios;
    EXPECT_EQ(ios, 500u);
  }
}

TEST(RowMergerTest, FilesGoFirst) {
  RowMerger merger;
  for (uint32_t n = 1; n <= 100; ++n) merger.Add(MakeRow(1, n, n));
  merger.Limit(50);
  // One intent, one actor: without files the rest is a single row.
  const std::vector<BlockRow> rows = merger.Take();
  EXPECT_LE(rows.size(), 50u);
  for (const BlockRow& row : rows) EXPECT_EQ(row.dirtier_intent, 1u);
}

TEST(RowMergerTest, WithinTheLimitNothingChanges) {
  RowMerger merger;
  for (uint32_t n = 1; n <= 10; ++n) merger.Add(MakeRow(n, n, n));
  EXPECT_EQ(merger.Limit(10), 0u);
  EXPECT_EQ(merger.Take().size(), 10u);
}

}  // namespace
}  // namespace fleetblame::agent
