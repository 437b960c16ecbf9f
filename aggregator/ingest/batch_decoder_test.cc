// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/batch_decoder.h"

#include <functional>
#include <random>

#include "absl/time/clock.h"
#include "aggregator/ingest/testing/sample_batch.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

absl::Status Decode(v1::Batch batch, v1::RowBlock* rows = nullptr,
                    const IngestLimits& limits = IngestLimits()) {
  v1::RowBlock own;
  return DecodeBatch(limits, absl::Now(), &batch, rows != nullptr ? rows : &own);
}

absl::Status Spoiled(const std::function<void(v1::Batch&)>& spoil) {
  v1::Batch batch = SampleBatch(1);
  spoil(batch);
  return Decode(std::move(batch));
}

absl::Status SpoiledRows(const std::function<void(v1::RowBlock&)>& spoil) {
  return Spoiled([&](v1::Batch& batch) {
    v1::RowBlock rows;
    EXPECT_TRUE(rows.ParseFromString(batch.rows()));
    spoil(rows);
    batch.set_rows(rows.SerializeAsString());
  });
}

TEST(BatchDecoder, TakesPlainAndCompressedAlike) {
  v1::RowBlock plain, compressed;
  EXPECT_TRUE(Decode(SampleBatch(1, 100), &plain).ok());
  EXPECT_TRUE(Decode(Compressed(SampleBatch(1, 100)), &compressed).ok());
  EXPECT_EQ(plain.ios_size(), 100);
  EXPECT_EQ(plain.SerializeAsString(), compressed.SerializeAsString());
}

TEST(BatchDecoder, ADecodedBatchKeepsNoPackedRows) {
  v1::Batch batch = SampleBatch(1);
  v1::RowBlock rows;
  ASSERT_TRUE(DecodeBatch(IngestLimits(), absl::Now(), &batch, &rows).ok());
  EXPECT_TRUE(batch.rows().empty());
}

TEST(BatchDecoder, EmptyBatchIsFine) {
  EXPECT_TRUE(Decode(SampleBatch(1, 0)).ok());
  v1::Batch bare;
  bare.set_seq(1);
  bare.set_encoding(v1::Batch::ENCODING_ZSTD);
  *bare.mutable_window() = SampleBatch(1).window();
  EXPECT_TRUE(Decode(bare).ok());
}

TEST(BatchDecoder, BombsDoNotUnpack) {
  v1::Batch bomb = SampleBatch(1);
  bomb.set_rows(std::string(64 << 20, '\0'));
  bomb = Compressed(std::move(bomb));
  EXPECT_LT(bomb.rows().size(), 100'000u);
  // Honest about its size: too large, so split it.
  EXPECT_TRUE(absl::IsResourceExhausted(Decode(bomb)));
  // Lies about its size.
  bomb.set_rows_plain_bytes(1000);
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(bomb)));
  v1::Batch longer = Compressed(SampleBatch(1));
  longer.set_rows_plain_bytes(longer.rows_plain_bytes() + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(longer)));
}

TEST(BatchDecoder, RefusesWhatDoesNotFitTogether) {
  using B = v1::Batch;
  EXPECT_TRUE(absl::IsInvalidArgument(Spoiled([](B& b) { b.set_seq(0); })));
  EXPECT_TRUE(absl::IsInvalidArgument(Spoiled([](B& b) { b.set_row_count(4); })));
  EXPECT_TRUE(absl::IsResourceExhausted(Spoiled([](B& b) { b.set_row_count(1 << 30); })));
  EXPECT_TRUE(absl::IsInvalidArgument(Spoiled([](B& b) { b.set_rows("\xff\xff\xff"); })));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Spoiled([](B& b) { b.set_encoding(static_cast<B::Encoding>(9)); })));
  EXPECT_TRUE(absl::IsInvalidArgument(Spoiled([](B& b) { b.set_dictionary_id(0); })));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Spoiled([](B& b) { b.mutable_definitions()->set_dictionary_id(9); })));
  EXPECT_TRUE(absl::IsInvalidArgument(Spoiled([](B& b) { b.mutable_coverage(0)->set_device(0); })));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Spoiled([](B& b) { b.mutable_coverage(0)->set_direction(v1::OPERATION_FLUSH); })));
  EXPECT_TRUE(absl::IsInvalidArgument(Spoiled([](B& b) { b.mutable_losses(0)->clear_name(); })));
  EXPECT_TRUE(absl::IsResourceExhausted(Spoiled([](B& b) {
    for (int i = 0; i < 2000; ++i) b.add_gaps();
  })));
}

TEST(BatchDecoder, RefusesWildRows) {
  using R = v1::RowBlock;
  EXPECT_TRUE(absl::IsInvalidArgument(SpoiledRows([](R& r) { r.set_device_ref(0, 99); })));
  EXPECT_TRUE(absl::IsInvalidArgument(SpoiledRows([](R& r) { r.add_ios(1); })));
  EXPECT_TRUE(absl::IsInvalidArgument(SpoiledRows([](R& r) {
    for (uint32_t i = 0; i < 1000; ++i) r.add_intents(i + 2);
  })));
}

TEST(BatchDecoder, WindowsMustBeOfThisWorld) {
  using B = v1::Batch;
  auto window = [](const std::function<void(v1::Window&)>& spoil) {
    return Spoiled([&](B& b) { spoil(*b.mutable_window()); });
  };
  auto at = [](absl::Time time, v1::Window& w) {
    w.set_realtime_offset_ns(absl::ToUnixNanos(time) - static_cast<int64_t>(w.end_boot_ns()));
  };
  EXPECT_TRUE(window([&](v1::Window& w) { at(absl::Now() + absl::Hours(23), w); }).ok());
  EXPECT_FALSE(window([&](v1::Window& w) { at(absl::Now() + absl::Hours(25), w); }).ok());
  EXPECT_TRUE(window([&](v1::Window& w) { at(absl::FromUnixSeconds(1'000'000'000), w); }).ok());
  EXPECT_FALSE(window([&](v1::Window& w) { at(absl::FromUnixSeconds(900'000'000), w); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_realtime_offset_ns(INT64_MAX); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_realtime_offset_ns(INT64_MIN); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_end_boot_ns(UINT64_MAX); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_end_boot_ns(w.start_boot_ns()); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_stack_sampling(1.5); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_stack_sampling(std::nan("")); }).ok());
  EXPECT_FALSE(window([](v1::Window& w) { w.set_boot_id(std::string(1000, 'x')); }).ok());
}

TEST(BatchDecoder, AReportOfARefusedBatchIsNeverRefused) {
  v1::Batch report;
  report.set_seq(5);
  report.mutable_window()->set_realtime_offset_ns(INT64_MIN);
  v1::Gap& gap = *report.add_gaps();
  gap.set_start_unix_ns(UINT64_MAX);
  gap.set_cause("rejected");
  v1::RowBlock rows;
  absl::Time now = absl::Now();
  ASSERT_TRUE(DecodeBatch(IngestLimits(), now, &report, &rows).ok());
  uint64_t limit = absl::ToUnixNanos(now + absl::Hours(24));
  EXPECT_LT(report.gaps(0).start_unix_ns(), report.gaps(0).end_unix_ns());
  EXPECT_LE(report.gaps(0).end_unix_ns(), limit);
  EXPECT_EQ(report.window().end_boot_ns(), static_cast<uint64_t>(absl::ToUnixNanos(now)));
}

TEST(BatchDecoder, FindsTheSeqOfWhatDoesNotParse) {
  v1::AgentMessage message;
  *message.mutable_batch() = SampleBatch(300);
  std::string bytes = message.SerializeAsString();
  EXPECT_EQ(PeekBatchSeq(bytes), 300u);
  size_t comm = bytes.find("postgres");
  ASSERT_NE(comm, std::string::npos);
  bytes[comm] = '\xff';
  EXPECT_FALSE(message.ParseFromString(bytes));
  EXPECT_EQ(PeekBatchSeq(bytes), 300u);
  EXPECT_EQ(PeekBatchSeq(bytes.substr(0, 16)), 300u);
  EXPECT_FALSE(PeekBatchSeq("").has_value());
  EXPECT_FALSE(PeekBatchSeq("garbage").has_value());
  message.Clear();
  *message.mutable_hello() = SampleHello();
  EXPECT_FALSE(PeekBatchSeq(message.SerializeAsString()).has_value());
}

// Whatever happens to the bytes: an answer, no crash, and rows that hold together when it is OK.
TEST(BatchDecoder, MutatedBatches) {
  std::mt19937 random(20240901);
  int taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    v1::Batch batch = SampleBatch(1, static_cast<int>(random() % 20));
    if (round % 2 == 0) batch = Compressed(std::move(batch));
    std::string bytes = batch.SerializeAsString();
    std::string* target = round % 3 == 0 ? batch.mutable_rows() : &bytes;
    for (unsigned i = 0; i <= random() % 4; ++i) {
      if (target->empty()) break;
      size_t at = random() % target->size();
      switch (random() % 4) {
        case 0:
          (*target)[at] = static_cast<char>(random());
          break;
        case 1:
          (*target)[at] ^= static_cast<char>(1 << random() % 8);
          break;
        case 2:
          target->erase(at, 1 + random() % 8);
          break;
        default:
          target->insert(at, std::string(1 + random() % 8, static_cast<char>(random())));
      }
    }
    if (target == &bytes && !batch.ParseFromString(bytes)) continue;
    v1::RowBlock rows;
    if (!DecodeBatch(IngestLimits(), absl::Now(), &batch, &rows).ok()) continue;
    ++taken;
    EXPECT_EQ(rows.device_ref_size(), rows.ios_size());
    for (uint32_t ref : rows.device_ref())
      EXPECT_LT(ref, static_cast<uint32_t>(rows.devices_size()));
  }
  // Some changes touch only values: those must get through, or nothing was tested.
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace fleetblame::aggregator
