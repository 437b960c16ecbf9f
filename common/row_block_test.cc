// SPDX-License-Identifier: Apache-2.0
#include "common/row_block.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace fleetblame {
namespace {

constexpr uint64_t kAnyRows = 1 << 20;

BlockRow RandomRow(std::mt19937_64& random) {
  auto below = [&random](uint64_t n) { return random() % n; };
  BlockRow row;
  row.dirtier_intent = static_cast<uint32_t>(below(40) * 1000003);
  row.issuer_intent = static_cast<uint32_t>(below(10));
  row.dirtier_actor = static_cast<uint32_t>(below(30));
  row.issuer_actor = static_cast<uint32_t>(below(5));
  row.device = static_cast<uint32_t>(1 + below(3));
  row.file = static_cast<uint32_t>(below(20));
  row.operation = static_cast<v1::Operation>(below(v1::Operation_MAX + 1));
  row.confidence = static_cast<v1::Confidence>(below(v1::Confidence_MAX + 1));
  row.ios = below(1000);
  row.bytes = row.ios * 4096;
  row.wait_ns = random() >> below(60);
  row.io_ns = random() >> below(60);
  row.errors = below(50) == 0 ? below(9) : 0;
  row.requeues = below(50) == 0 ? below(9) : 0;
  for (uint64_t i = below(12); i > 0; --i) {
    row.wait.Add(static_cast<int>(below(kHistogramBuckets)), 1 + below(300));
  }
  for (uint64_t i = below(12); i > 0; --i) {
    row.io.Add(static_cast<int>(below(kHistogramBuckets)), 1 + below(300));
  }
  return row;
}

void ExpectEqual(const BlockRow& got, const BlockRow& want, bool histograms) {
  EXPECT_EQ(got.dirtier_intent, want.dirtier_intent);
  EXPECT_EQ(got.issuer_intent, want.issuer_intent);
  EXPECT_EQ(got.dirtier_actor, want.dirtier_actor);
  EXPECT_EQ(got.issuer_actor, want.issuer_actor);
  EXPECT_EQ(got.device, want.device);
  EXPECT_EQ(got.file, want.file);
  EXPECT_EQ(got.operation, want.operation);
  EXPECT_EQ(got.confidence, want.confidence);
  EXPECT_EQ(got.ios, want.ios);
  EXPECT_EQ(got.bytes, want.bytes);
  EXPECT_EQ(got.wait_ns, want.wait_ns);
  EXPECT_EQ(got.io_ns, want.io_ns);
  EXPECT_EQ(got.errors, want.errors);
  EXPECT_EQ(got.requeues, want.requeues);
  EXPECT_EQ(got.wait.entries(), histograms ? want.wait.entries() : SparseHistogram().entries());
  EXPECT_EQ(got.io.entries(), histograms ? want.io.entries() : SparseHistogram().entries());
}

std::vector<BlockRow> RandomRows(uint64_t seed, int n) {
  std::mt19937_64 random(seed);
  std::vector<BlockRow> rows;
  for (int i = 0; i < n; ++i) rows.push_back(RandomRow(random));
  return rows;
}

v1::RowBlock BlockOf(const std::vector<BlockRow>& rows,
                     RowBlockBuilder::Order order = RowBlockBuilder::Order::kAsAdded) {
  RowBlockBuilder builder(order);
  for (const BlockRow& row : rows) builder.Add(row);
  return builder.Finish();
}

TEST(RowBlock, WhatGoesInComesOut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<BlockRow> rows = RandomRows(seed, static_cast<int>(seed * 7));
    v1::RowBlock block;
    ASSERT_TRUE(block.ParseFromString(BlockOf(rows).SerializeAsString()));
    ASSERT_TRUE(ValidateRowBlock(block, kAnyRows).ok()) << ValidateRowBlock(block, kAnyRows);
    for (bool histograms : {true, false}) {
      RowBlockReader reader(block);
      BlockRow got;
      for (const BlockRow& want : rows) {
        ASSERT_TRUE(reader.Next(&got, histograms));
        ExpectEqual(got, want, histograms);
      }
      EXPECT_FALSE(reader.Next(&got, histograms));
      EXPECT_FALSE(reader.Next(&got, histograms));
    }
  }
}

TEST(RowBlock, SortingKeepsEachRowWhole) {
  std::vector<BlockRow> rows = RandomRows(9, 300);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].ios = i;  // tells them apart
  v1::RowBlock block = BlockOf(rows, RowBlockBuilder::Order::kByKey);
  ASSERT_TRUE(ValidateRowBlock(block, kAnyRows).ok());
  RowBlockReader reader(block);
  BlockRow got;
  std::vector<char> seen(rows.size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(reader.Next(&got));
    ASSERT_LT(got.ios, rows.size());
    ExpectEqual(got, rows[got.ios], true);
    EXPECT_FALSE(seen[got.ios]);
    seen[got.ios] = 1;
    if (i == 0) continue;
    int at = static_cast<int>(i);
    EXPECT_LE(block.device_ref(at - 1), block.device_ref(at));
  }
}

TEST(RowBlock, HistogramsMayBeSkippedRowByRow) {
  std::vector<BlockRow> rows = RandomRows(3, 200);
  v1::RowBlock block = BlockOf(rows);
  RowBlockReader reader(block);
  BlockRow got;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(reader.Next(&got, i % 3 == 0));
    ExpectEqual(got, rows[i], i % 3 == 0);
  }
}

TEST(RowBlock, BuilderStartsAfreshAfterFinish) {
  RowBlockBuilder builder;
  for (const BlockRow& row : RandomRows(1, 100)) builder.Add(row);
  EXPECT_EQ(builder.rows(), 100);
  builder.Finish();
  EXPECT_EQ(builder.rows(), 0);
  std::vector<BlockRow> second = RandomRows(2, 100);
  for (const BlockRow& row : second) builder.Add(row);
  EXPECT_EQ(builder.Finish().SerializeAsString(), BlockOf(second).SerializeAsString());
}

TEST(RowBlock, ColumnsOfZeroesAreLeftOut) {
  std::vector<BlockRow> rows = RandomRows(1, 100);
  for (BlockRow& row : rows) row.errors = row.requeues = 0;
  v1::RowBlock block = BlockOf(rows);
  EXPECT_EQ(block.errors_size(), 0);
  EXPECT_EQ(block.requeues_size(), 0);
  rows[99].errors = 1;
  block = BlockOf(rows);
  EXPECT_EQ(block.errors_size(), 100);
  EXPECT_EQ(block.requeues_size(), 0);
}

TEST(RowBlock, EstimateOfSizeIsNeverTooSmall) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RowBlockBuilder builder;
    for (const BlockRow& row : RandomRows(seed, static_cast<int>(seed * seed))) builder.Add(row);
    size_t estimate = builder.approximate_bytes();
    size_t truth = builder.Finish().ByteSizeLong();
    EXPECT_GE(estimate, truth);
    EXPECT_LE(estimate, truth + 200);
  }
}

TEST(RowBlock, EmptyBlockIsValid) {
  EXPECT_TRUE(ValidateRowBlock(v1::RowBlock(), 0).ok());
  EXPECT_TRUE(ValidateRowBlock(RowBlockBuilder().Finish(), 0).ok());
  BlockRow row;
  v1::RowBlock empty;
  EXPECT_FALSE(RowBlockReader(empty).Next(&row));
}

TEST(RowBlock, TooManyRowsAreRefused) {
  v1::RowBlock block = BlockOf(RandomRows(1, 11));
  EXPECT_TRUE(ValidateRowBlock(block, 11).ok());
  EXPECT_EQ(ValidateRowBlock(block, 10).code(), absl::StatusCode::kInvalidArgument);
}

// Each case breaks a valid block in one way.
TEST(RowBlock, EveryMalformationIsRefused) {
  using Break = std::function<void(v1::RowBlock*)>;
  const std::vector<std::pair<const char*, Break>> cases = {
      {"short key column", [](auto* b) { b->mutable_file_ref()->RemoveLast(); }},
      {"long key column", [](auto* b) { b->add_device_ref(0); }},
      {"short value column", [](auto* b) { b->mutable_bytes()->RemoveLast(); }},
      {"missing value column", [](auto* b) { b->clear_io_ns(); }},
      {"short errors", [](auto* b) { b->clear_errors(), b->add_errors(1); }},
      {"short op column", [](auto* b) { b->mutable_op_confidence()->RemoveLast(); }},
      {"intent out of table",
       [](auto* b) { b->set_dirtier_intent_ref(5, static_cast<uint32_t>(b->intents_size())); }},
      {"actor far out of table", [](auto* b) { b->set_issuer_actor_ref(0, UINT32_MAX); }},
      {"device out of table",
       [](auto* b) { b->set_device_ref(0, static_cast<uint32_t>(b->devices_size())); }},
      {"empty table", [](auto* b) { b->clear_files(); }},
      {"intents not from none", [](auto* b) { b->set_intents(0, 7); }},
      {"actors not from none", [](auto* b) { b->set_actors(0, 7); }},
      {"files not from none", [](auto* b) { b->set_files(0, 7); }},
      {"operation", [](auto* b) { b->set_op_confidence(0, v1::Operation_MAX + 1); }},
      {"confidence", [](auto* b) { b->set_op_confidence(0, (v1::Confidence_MAX + 1) << 4); }},
      {"far op", [](auto* b) { b->set_op_confidence(0, UINT32_MAX); }},
      {"bucket count too large", [](auto* b) { b->set_wait_buckets(0, UINT32_MAX); }},
      {"bucket counts short", [](auto* b) { b->mutable_io_buckets()->RemoveLast(); }},
      {"left over", [](auto* b) { b->add_wait_bucket_delta(1), b->add_wait_bucket_count(1); }},
      {"counts missing", [](auto* b) { b->mutable_io_bucket_count()->RemoveLast(); }},
      {"bucket out of range",
       [](auto* b) { b->set_io_bucket_delta(0, static_cast<uint32_t>(kHistogramBuckets)); }},
      {"bucket overflow",
       [](auto* b) { b->set_io_bucket_delta(0, UINT32_MAX), b->set_io_bucket_delta(1, 1); }},
      {"not increasing", [](auto* b) { b->set_io_bucket_delta(1, 0); }},
  };
  std::vector<BlockRow> rows = RandomRows(4, 20);
  for (BlockRow& row : rows) {
    row.io.Add(3, 1);
    row.io.Add(9, 1);
    row.wait.Add(2, 5);
    row.errors = 1;
  }
  const v1::RowBlock good = BlockOf(rows);
  ASSERT_TRUE(ValidateRowBlock(good, kAnyRows).ok());
  for (const auto& [name, break_it] : cases) {
    v1::RowBlock bad = good;
    break_it(&bad);
    absl::Status status = ValidateRowBlock(bad, kAnyRows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_FALSE(status.message().empty()) << name;
  }
}

// Whatever bytes arrive: refused, or readable to the end.
TEST(RowBlock, RandomDamageNeverHurtsTheReader) {
  std::mt19937_64 random(11);
  const std::string good = BlockOf(RandomRows(5, 60)).SerializeAsString();
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int flips = 0; flips < 1 + i % 4; ++flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    v1::RowBlock block;
    if (!block.ParseFromString(bytes) || !ValidateRowBlock(block, kAnyRows).ok()) {
      ++refused;
      continue;
    }
    ++accepted;
    RowBlockReader reader(block);
    BlockRow row;
    int rows = 0;
    while (reader.Next(&row)) ++rows;
    EXPECT_EQ(rows, block.op_confidence_size());
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(RowBlockTest, BucketSpansAreThoseOfTheLastRow) {
  RowBlockBuilder builder;
  BlockRow row;
  builder.Add(row);
  row.device = 1;
  row.wait.Add(3, 10);
  row.wait.Add(8, 20);
  row.io.Add(100, 7);
  builder.Add(row);
  row.device = 2;
  row.wait.clear();
  row.io.Add(193, 1);
  builder.Add(row);
  const v1::RowBlock block = builder.Finish();
  RowBlockReader expected(block);
  RowBlockReader reader(block);
  for (bool histograms : {false, true, false}) {
    BlockRow want, read;
    ASSERT_TRUE(expected.Next(&want));
    ASSERT_TRUE(reader.Next(&read, histograms));
    SparseHistogram wait, io;
    auto unpack = [](const BucketSpan& span, SparseHistogram* out) {
      int bucket = 0;
      for (uint32_t i = 0; i < span.size; ++i) {
        bucket += static_cast<int>(span.deltas[i]);
        out->Add(bucket, span.counts[i]);
      }
    };
    unpack(reader.wait_buckets(), &wait);
    unpack(reader.io_buckets(), &io);
    EXPECT_EQ(wait.entries(), want.wait.entries());
    EXPECT_EQ(io.entries(), want.io.entries());
  }
}

}  // namespace
}  // namespace fleetblame
