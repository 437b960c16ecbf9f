// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/window_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "aggregator/store/row_codec.h"
#include "aggregator/store/row_merger.h"
#include "aggregator/store/row_testing.h"
#include "aggregator/store/window_sum.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kLastNs = 1'790'035'259'999'999'999;
constexpr uint64_t kSecondNs = 1'000'000'000;

struct Shape {
  int windows = 6;
  int keys = 80;
  int busy = 4;              // bits of ios
  bool orderly = true;       // sums and histograms belong together
  bool totals_match = true;  // counts sum up to ios
  bool zero_ios = false;     // some rows have bytes only, as a small share of an IO
  bool odd_bytes = false;
  bool histograms = true;
};

v1::RowBlock DrawRows(const Shape& shape, std::mt19937_64& random) {
  RowBlockBuilder builder;
  for (int i = 0; i < shape.keys; ++i) {
    if (random() % 3 == 0) continue;
    BlockRow row;
    row.device = static_cast<uint32_t>(i % 3);
    row.operation = static_cast<v1::Operation>(1 + i % 2);
    row.confidence = static_cast<v1::Confidence>(i % 5);
    row.dirtier_actor = static_cast<uint32_t>(i / 7);
    row.issuer_actor = i % 4 ? row.dirtier_actor : 99;
    row.dirtier_intent = static_cast<uint32_t>(1 + i % 11);
    row.issuer_intent = i % 5 ? row.dirtier_intent : 70;
    row.file = i % 2 ? 0 : static_cast<uint32_t>(1000 + i);
    row.ios = 1 + (random() >> (64 - shape.busy)) % (uint64_t{1} << random() % 24);
    if (shape.zero_ios && random() % 3 == 0) row.ios = 0;
    row.bytes = (row.ios + (shape.zero_ios ? random() % 2 : 0)) * 4096 * (1 + random() % 2);
    if (shape.odd_bytes) row.bytes += random() % 4096;
    row.errors = random() % 50 == 0;
    row.requeues = random() % 90 == 0;
    for (auto [sum, histogram] : {std::pair{&row.wait_ns, &row.wait}, {&row.io_ns, &row.io}}) {
      // Small enough that the sum of all windows fits.
      if (!shape.orderly) *sum = random() >> (8 + random() % 56);
      if (!shape.histograms) continue;
      DrawHistogram(shape.totals_match ? row.ios : random() % 30, /*ns_bits=*/36, random, histogram,
                    shape.orderly ? sum : nullptr);
    }
    builder.Add(row);
  }
  return builder.Finish();
}

// As they come out of the store.
v1::RowBlock Stored(const v1::RowBlock& rows) {
  v1::RowBlock out;
  uint64_t span_ns = 0;
  EXPECT_TRUE(DecodeRows(EncodeRows(rows, 1), &out, &span_ns).ok());
  return out;
}

std::vector<SplitWindow> DrawWindows(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<SplitWindow> windows;
  for (int i = shape.windows; i > 0; --i) {
    windows.push_back({kLastNs - static_cast<uint64_t>(i - 1) * kSecondNs, kSecondNs + i % 2,
                       Stored(DrawRows(shape, random))});
  }
  return windows;
}

std::string BucketOf(const std::vector<SplitWindow>& windows) {
  RowMerger merger;
  for (const SplitWindow& w : windows) merger.Add(w.rows);
  return EncodeRows(merger.Finish(), 60 * kSecondNs);
}

void ExpectSame(const std::vector<SplitWindow>& got, const std::vector<SplitWindow>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].last_ns, want[i].last_ns);
    EXPECT_EQ(got[i].span_ns, want[i].span_ns);
    ASSERT_TRUE(ValidateRowBlock(got[i].rows, 1000).ok()) << ValidateRowBlock(got[i].rows, 1000);
    EXPECT_EQ(RowTexts(got[i].rows), RowTexts(want[i].rows)) << "window " << i;
  }
}

TEST(WindowSplit, EveryShapeComesBack) {
  uint64_t seed = 0;
  std::vector<SplitWindow> got;  // reused, as readers do
  for (int windows : {1, 2, 6, 64}) {
    for (int busy : {1, 5, 20}) {
      for (int bits = 0; bits < 32; ++bits) {
        Shape shape;
        shape.windows = windows;
        shape.keys = windows > 10 ? 20 : 80;
        shape.busy = busy;
        shape.orderly = bits & 1;
        shape.totals_match = bits & 2;
        shape.zero_ios = bits & 4;
        shape.odd_bytes = bits & 8;
        shape.histograms = bits & 16;
        std::vector<SplitWindow> want = DrawWindows(shape, ++seed);
        const std::string bucket = BucketOf(want);
        std::optional<std::string> value = EncodeWindowSplit(bucket, kLastNs, want);
        ASSERT_TRUE(value.has_value()) << "seed " << seed;
        EXPECT_TRUE(IsWindowSplit(*value));
        EXPECT_FALSE(IsWindowSplit(bucket));
        absl::Status status = DecodeWindowSplit(*value, bucket, kLastNs, &got);
        ASSERT_TRUE(status.ok()) << status << " seed " << seed;
        ExpectSame(got, want);
        if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
      }
    }
  }
}

TEST(WindowSplit, TakesLessThanTheWindowsByThemselves) {
  // As most rows are: a few IOs of about the same latency.
  std::vector<SplitWindow> windows;
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < 6; ++i) {
    RowBlockBuilder builder;
    for (uint32_t key = 0; key < 500; ++key) {
      BlockRow row;
      if (random() % 4 == 0) continue;
      row.dirtier_actor = row.issuer_actor = key % 40;
      row.dirtier_intent = row.issuer_intent = key % 50;
      row.file = key;
      row.operation = v1::OPERATION_WRITE;
      row.ios = 1 + random() % 6;
      row.bytes = row.ios * 4096;
      for (uint64_t io = 0; io < row.ios; ++io) {
        const uint64_t wait_ns = 2000 + random() % 2000;
        const uint64_t io_ns = 50'000 + random() % 50'000;
        row.wait_ns += wait_ns;
        row.io_ns += io_ns;
        row.wait.Add(HistogramBucket(wait_ns), 1);
        row.io.Add(HistogramBucket(io_ns), 1);
      }
      builder.Add(row);
    }
    windows.push_back({kLastNs - i, kSecondNs, Stored(builder.Finish())});
  }
  size_t alone = 0;
  for (const SplitWindow& w : windows) alone += EncodeRows(w.rows, w.span_ns).size();
  std::optional<std::string> value = EncodeWindowSplit(BucketOf(windows), kLastNs, windows);
  ASSERT_TRUE(value.has_value());
  EXPECT_LT(value->size(), alone / 2);
}

TEST(WindowSum, SaysWhatTheMergerSays) {
  for (int bits = 0; bits < 32; ++bits) {
    Shape shape{.orderly = (bits & 1) != 0,
                .totals_match = (bits & 2) != 0,
                .zero_ios = (bits & 4) != 0,
                .odd_bytes = (bits & 8) != 0,
                .histograms = (bits & 16) != 0};
    std::vector<SplitWindow> windows = DrawWindows(shape, 100 + static_cast<uint64_t>(bits));
    RowMerger merger;
    for (const SplitWindow& w : windows) merger.Add(w.rows);
    v1::RowBlock want = merger.Finish();
    std::optional<v1::RowBlock> got = SumWindows(windows, 1000, 1000);
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(ValidateRowBlock(*got, 1000).ok()) << ValidateRowBlock(*got, 1000);
    EXPECT_EQ(RowTexts(*got), RowTexts(want)) << bits;
    // Exactly at the bounds, and beyond them.
    const auto rows = static_cast<size_t>(want.op_confidence_size());
    const auto files = static_cast<uint32_t>(want.files_size() - 1);
    EXPECT_TRUE(SumWindows(windows, rows, files).has_value());
    EXPECT_FALSE(SumWindows(windows, rows - 1, files).has_value());
    EXPECT_FALSE(SumWindows(windows, rows, files - 1).has_value());
  }
  // Sums that do not fit stay at the largest number, here and there.
  std::vector<SplitWindow> windows = DrawWindows({.windows = 3, .keys = 20}, 200);
  for (SplitWindow& w : windows) {
    for (int i = 0; i < w.rows.op_confidence_size(); ++i) {
      w.rows.set_bytes(i, UINT64_MAX - 7);
      w.rows.set_io_ns(i, UINT64_MAX / 2 + 1);
    }
  }
  RowMerger merger;
  for (const SplitWindow& w : windows) merger.Add(w.rows);
  const v1::RowBlock want = merger.Finish();
  EXPECT_NE(std::find(want.bytes().begin(), want.bytes().end(), UINT64_MAX), want.bytes().end());
  for (uint64_t io_ns : want.io_ns()) EXPECT_GT(io_ns, UINT64_MAX / 2);
  std::optional<v1::RowBlock> got = SumWindows(windows, 1000, 1000);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(RowTexts(*got), RowTexts(want));
  std::optional<v1::RowBlock> none = SumWindows({}, 10, 10);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->op_confidence_size(), 0);
}

TEST(WindowSplit, WhatIsNoPlainSumIsLeftAlone) {
  std::vector<SplitWindow> windows = DrawWindows({}, 2);
  RowMerger merger;
  auto merge = [&](const RowMerger::Limits& limits) {
    for (const SplitWindow& w : windows) merger.Add(w.rows);
    return EncodeRows(merger.Finish(limits), 1);
  };
  ASSERT_TRUE(EncodeWindowSplit(merge({}), kLastNs, windows).has_value());
  EXPECT_FALSE(EncodeWindowSplit(merge({.files = 3}), kLastNs, windows).has_value());
  EXPECT_FALSE(EncodeWindowSplit(merge({.rows = 10}), kLastNs, windows).has_value());
  // A window that the bucket lacks, and the other way round.
  const std::string bucket = merge({});
  std::vector<SplitWindow> other = windows;
  other.pop_back();
  EXPECT_FALSE(EncodeWindowSplit(bucket, kLastNs, other).has_value());
  other = windows;
  other.push_back(windows[0]);
  EXPECT_FALSE(EncodeWindowSplit(bucket, kLastNs, other).has_value());
  other = DrawWindows({}, 3);
  EXPECT_FALSE(EncodeWindowSplit(bucket, kLastNs, other).has_value());
  EXPECT_FALSE(EncodeWindowSplit(bucket, kLastNs - 1, windows).has_value());
  EXPECT_FALSE(EncodeWindowSplit(bucket, kLastNs, {}).has_value());
  EXPECT_FALSE(EncodeWindowSplit("", kLastNs, windows).has_value());
  // One number that is not what the sum says, in each of the columns.
  for (int column = 0; column < 5; ++column) {
    other = windows;
    v1::RowBlock& b = other[2].rows;
    const int row = b.op_confidence_size() / 2;
    if (column == 0) b.set_ios(row, b.ios(row) + 1);
    if (column == 1) b.set_bytes(row, b.bytes(row) + 512);
    if (column == 2) b.set_wait_ns(row, b.wait_ns(row) + 1);
    if (column == 3) b.set_io_ns(row, b.io_ns(row) + 1);
    if (column == 4) b.set_io_bucket_count(0, b.io_bucket_count(0) + 1);
    EXPECT_FALSE(EncodeWindowSplit(bucket, kLastNs, other).has_value()) << column;
  }
}

TEST(WindowSplit, TooManyWindowsAndAbsurdCountsAreLeftAlone) {
  std::vector<SplitWindow> windows = DrawWindows({.windows = 65, .keys = 5}, 4);
  EXPECT_FALSE(EncodeWindowSplit(BucketOf(windows), kLastNs, windows).has_value());
  windows = DrawWindows({.windows = 3, .keys = 5, .totals_match = false}, 4);
  windows[0].rows.set_ios(0, uint64_t{1} << 40);
  EXPECT_FALSE(EncodeWindowSplit(BucketOf(windows), kLastNs, windows).has_value());
  // A sum that stays at the largest number is none of which the last part can be told.
  windows = DrawWindows({.windows = 3, .keys = 5, .orderly = false}, 4);
  for (SplitWindow& w : windows) {
    for (uint64_t& io_ns : *w.rows.mutable_io_ns()) io_ns = UINT64_MAX - 1;
  }
  EXPECT_FALSE(EncodeWindowSplit(BucketOf(windows), kLastNs, windows).has_value());
}

TEST(WindowSplit, AnotherBucketIsNoticed) {
  std::vector<SplitWindow> windows = DrawWindows({}, 5);
  const std::string bucket = BucketOf(windows);
  std::optional<std::string> value = EncodeWindowSplit(bucket, kLastNs, windows);
  ASSERT_TRUE(value.has_value());
  std::vector<SplitWindow> got;
  EXPECT_TRUE(
      absl::IsDataLoss(DecodeWindowSplit(*value, BucketOf(DrawWindows({}, 6)), kLastNs, &got)));
}

TEST(WindowSplit, DamageIsRefusedOrYieldsValidBlocks) {
  std::mt19937_64 random(9);
  int refused = 0;
  std::vector<SplitWindow> got;
  for (int shape = 0; shape < 4; ++shape) {
    std::vector<SplitWindow> windows =
        DrawWindows({.keys = 20, .orderly = shape % 2 == 0, .totals_match = shape < 2}, 8);
    const std::string bucket = BucketOf(windows);
    const std::string good = *EncodeWindowSplit(bucket, kLastNs, windows);
    for (int i = 0; i < 4000; ++i) {
      std::string bad = good;
      if (i % 5 == 0) bad.resize(random() % bad.size());
      for (int flips = i % 4; flips > 0 && !bad.empty(); --flips) {
        // Behind the checksum, or nothing else would be tried.
        size_t at = 5 + random() % (random() % 3 == 0 ? 30 : bad.size());
        bad[at % bad.size()] ^= static_cast<char>(1u << random() % 8);
      }
      if (!DecodeWindowSplit(bad, bucket, kLastNs, &got).ok()) {
        ++refused;
        continue;
      }
      for (const SplitWindow& w : got) {
        ASSERT_TRUE(ValidateRowBlock(w.rows, 1000).ok()) << ValidateRowBlock(w.rows, 1000);
      }
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace fleetblame::aggregator
