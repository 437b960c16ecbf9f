// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/coarsen.h"

#include "absl/strings/str_cat.h"
#include "common/row_block.h"
#include "gtest/gtest.h"
#include "node-agent/compact/row_codec.h"

namespace fleetblame::agent {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

v1::Batch Window(uint64_t n, std::vector<std::pair<uint32_t, uint64_t>> rows) {
  RowBlockBuilder builder;
  for (const auto& [intent, bytes] : rows) {
    BlockRow row;
    row.dirtier_intent = intent;
    row.device = 1;
    row.operation = v1::OPERATION_WRITE;
    row.confidence = v1::CONFIDENCE_EXACT;
    row.ios = 1;
    row.bytes = bytes;
    row.io.Add(40, 1);
    builder.Add(row);
  }
  v1::Batch batch;
  batch.set_dictionary_id(9);
  batch.mutable_window()->set_start_boot_ns(n * kSecond);
  batch.mutable_window()->set_end_boot_ns((n + 1) * kSecond);
  batch.mutable_window()->set_realtime_offset_ns(static_cast<int64_t>(n));
  batch.mutable_window()->set_boot_id("b");
  v1::CoverageSample* sample = batch.add_coverage();
  sample->set_device(1);
  sample->set_direction(v1::OPERATION_WRITE);
  sample->set_recorded_bytes(n);
  sample->set_kernel_bytes(n);
  sample->set_kernel_ios(1);
  v1::LossCounter* loss = batch.add_losses();
  loss->set_name("idx_nomem");
  loss->set_delta(n);
  batch.add_gaps()->set_cause(absl::StrCat("gap-", n));
  v1::TagWaitRow* wait = batch.mutable_tag_waits()->add_rows();
  wait->set_device(1);
  wait->set_waits(n);
  EncodeRows(builder.Finish(), static_cast<int>(rows.size()), &batch);
  return batch;
}

uint64_t SumBytes(const std::vector<v1::Batch>& batches) {
  uint64_t sum = 0;
  for (const v1::Batch& batch : batches) {
    auto block = DecodeRows(batch);
    EXPECT_TRUE(block.ok()) << block.status();
    for (const uint64_t bytes : block->bytes()) sum += bytes;
  }
  return sum;
}

TEST(CoarsenTest, PairsOfNeighboursBecomeOne) {
  const auto result = CoarsenBatches(
      {Window(1, {{1, 10}, {2, 20}}), Window(2, {{1, 5}}), Window(3, {{3, 7}})}, CutLimits());
  ASSERT_EQ(result.size(), 2u);
  const v1::Window& window = result[0].window();
  EXPECT_EQ(window.start_boot_ns(), 1 * kSecond);
  EXPECT_EQ(window.end_boot_ns(), 3 * kSecond);
  EXPECT_EQ(window.realtime_offset_ns(), 2);
  EXPECT_TRUE(window.coarsened());
  EXPECT_EQ(result[0].row_count(), 2u);
  EXPECT_EQ(result[0].coverage(0).recorded_bytes(), 3u);
  EXPECT_EQ(result[0].coverage(0).kernel_ios(), 2u);
  EXPECT_EQ(result[0].losses(0).delta(), 3u);
  EXPECT_EQ(result[0].gaps_size(), 2);
  ASSERT_EQ(result[0].tag_waits().rows_size(), 1);
  EXPECT_EQ(result[0].tag_waits().rows(0).waits(), 3u);
  EXPECT_EQ(SumBytes(result), 42u);
  // The odd one is as it was.
  EXPECT_EQ(result[1].SerializeAsString(), Window(3, {{3, 7}}).SerializeAsString());

  auto block = DecodeRows(result[0]);
  ASSERT_TRUE(block.ok());
  RowBlockReader reader(*block);
  BlockRow row;
  ASSERT_TRUE(reader.Next(&row));
  EXPECT_EQ(row.dirtier_intent, 1u);
  EXPECT_EQ(row.bytes, 15u);
  EXPECT_EQ(row.io.total(), 2u);
}

TEST(CoarsenTest, BatchesOfOneWindowStayTogether) {
  // Two windows of two batches each: four batches become one or two that say the same.
  std::vector<v1::Batch> batches = {Window(1, {{1, 1}}), Window(1, {{2, 2}}), Window(2, {{1, 3}}),
                                    Window(2, {{2, 4}})};
  batches[1].clear_coverage();
  batches[3].clear_coverage();
  const auto result = CoarsenBatches(batches, CutLimits());
  ASSERT_EQ(result.size(), 1u);
  EXPECT_EQ(result[0].row_count(), 2u);
  EXPECT_EQ(SumBytes(result), 10u);
  EXPECT_EQ(result[0].coverage(0).recorded_bytes(), 3u);
}

TEST(CoarsenTest, WhatDoesNotTouchIsNotMerged) {
  v1::Batch other_boot = Window(2, {{1, 1}});
  other_boot.mutable_window()->set_boot_id("c");
  EXPECT_EQ(CoarsenBatches({Window(1, {}), other_boot}, CutLimits()).size(), 2u);
  v1::Batch other_dictionary = Window(2, {{1, 1}});
  other_dictionary.set_dictionary_id(10);
  EXPECT_EQ(CoarsenBatches({Window(1, {}), other_dictionary}, CutLimits()).size(), 2u);
  EXPECT_EQ(CoarsenBatches({Window(1, {}), Window(3, {})}, CutLimits()).size(), 2u);
  EXPECT_EQ(CoarsenBatches({}, CutLimits()).size(), 0u);
}

TEST(CoarsenTest, UnreadableRowsLeaveEverythingAsItWas) {
  v1::Batch broken = Window(2, {{1, 1}});
  broken.set_rows("garbage");
  broken.set_encoding(v1::Batch::ENCODING_ZSTD);
  const auto result = CoarsenBatches({Window(1, {{1, 1}}), broken}, CutLimits());
  ASSERT_EQ(result.size(), 2u);
  EXPECT_EQ(result[1].rows(), "garbage");
}

TEST(CoarsenTest, AgainAndAgain) {
  std::vector<v1::Batch> batches;
  for (uint64_t n = 1; n <= 64; ++n) batches.push_back(Window(n, {{1, n}}));
  for (int round = 0; round < 6; ++round) batches = CoarsenBatches(batches, CutLimits());
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(SumBytes(batches), 64u * 65 / 2);
  EXPECT_EQ(batches[0].window().end_boot_ns(), 65 * kSecond);
}

}  // namespace
}  // namespace fleetblame::agent
