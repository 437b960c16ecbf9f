// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "aggregator/store/row_testing.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {
namespace {

struct Shape {
  int rows = 100;
  bool orderly = true;       // sums and histograms belong together
  bool totals_match = true;  // counts sum up to ios
  bool wild = false;         // any 64-bit values
  bool histograms = true;
};

v1::RowBlock Draw(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  RowBlockBuilder builder;
  for (int i = 0; i < shape.rows; ++i) {
    BlockRow row;
    row.dirtier_intent = static_cast<uint32_t>(random() % 30 * 1000);
    row.issuer_intent = random() % 2 ? row.dirtier_intent : static_cast<uint32_t>(random() % 5);
    row.dirtier_actor = static_cast<uint32_t>(random() % 20);
    row.issuer_actor = random() % 2 ? row.dirtier_actor : static_cast<uint32_t>(random() % 4);
    row.device = static_cast<uint32_t>(random() % 4);
    row.file = random() % 2 ? 0 : static_cast<uint32_t>(random() >> 32);
    row.operation = static_cast<v1::Operation>(random() % (v1::Operation_MAX + 1));
    row.confidence = static_cast<v1::Confidence>(random() % (v1::Confidence_MAX + 1));
    row.ios = random() % 8 == 0 ? 0 : random() % (uint64_t{1} << random() % 20);
    row.bytes = row.ios * 4096;
    row.errors = random() % 9 == 0;
    row.requeues = random() % 99 == 0;
    if (shape.wild) {
      row.ios = random() >> random() % 64;
      row.bytes = random() >> random() % 64;
    }
    for (auto [sum, histogram] : {std::pair{&row.wait_ns, &row.wait}, {&row.io_ns, &row.io}}) {
      *sum = shape.orderly ? 0 : random() >> random() % 64;
      if (!shape.histograms) continue;
      DrawHistogram(shape.totals_match ? row.ios : random() % 1000, /*ns_bits=*/44, random,
                    histogram, shape.orderly ? sum : nullptr);
    }
    builder.Add(row);
  }
  return builder.Finish();
}

TEST(RowCodec, EveryShapeComesBack) {
  uint64_t seed = 0;
  v1::RowBlock got;  // reused, as readers do
  for (int rows : {0, 1, 2, 17, 500}) {
    for (bool orderly : {false, true}) {
      for (bool totals_match : {false, true}) {
        for (bool wild : {false, true}) {
          for (bool histograms : {false, true}) {
            // A histogram of 2^60 IOs drawn at random takes a while.
            if (wild && totals_match && histograms) continue;
            v1::RowBlock block = Draw({rows, orderly, totals_match, wild, histograms}, ++seed);
            ASSERT_TRUE(ValidateRowBlock(block, 1000).ok());
            std::string value = EncodeRows(block, 777 + seed);
            uint64_t span_ns = 0;
            absl::Status status = DecodeRows(value, &got, &span_ns);
            ASSERT_TRUE(status.ok()) << status << " seed " << seed;
            EXPECT_EQ(span_ns, 777 + seed);
            ASSERT_TRUE(ValidateRowBlock(got, 1000).ok()) << ValidateRowBlock(got, 1000);
            EXPECT_EQ(RowTexts(got), RowTexts(block)) << "seed " << seed;
            EXPECT_EQ(value[0], 2);
            // And without histograms.
            ASSERT_TRUE(DecodeRows(value, &got, &span_ns, false).ok());
            EXPECT_EQ(RowTexts(got, false), RowTexts(block, false));
            EXPECT_EQ(got.wait_bucket_delta_size(), 0);
          }
        }
      }
    }
  }
}

TEST(RowCodec, EncodingIsStable) {
  v1::RowBlock block = Draw({}, 5);
  std::string once = EncodeRows(block, 1);
  v1::RowBlock back;
  uint64_t span_ns = 0;
  ASSERT_TRUE(DecodeRows(once, &back, &span_ns).ok());
  EXPECT_EQ(EncodeRows(back, 1).size(), once.size());
}

TEST(RowCodec, DoubleTableEntriesAndEmptyBucketsAreTaken) {
  v1::RowBlock block = Draw({.rows = 50}, 3);
  for (int i = 1; i < block.actors_size(); ++i) block.set_actors(i, 7);
  block.add_files(99);  // that no row uses
  for (int i = 0; i < block.io_bucket_count_size(); i += 3) block.set_io_bucket_count(i, 0);
  ASSERT_TRUE(ValidateRowBlock(block, 1000).ok());
  v1::RowBlock got;
  uint64_t span_ns = 0;
  ASSERT_TRUE(DecodeRows(EncodeRows(block, 1), &got, &span_ns).ok());
  EXPECT_EQ(RowTexts(got), RowTexts(block));
}

TEST(RowCodec, AbsurdCountsFallBackToTheOtherEncoding) {
  v1::RowBlock block = Draw({.rows = 5}, 3);
  while (block.io_bucket_count_size() == 0) block = Draw({.rows = 5}, 4);
  block.set_io_bucket_count(0, UINT64_MAX);
  std::string value = EncodeRows(block, 1);
  EXPECT_EQ(value[0], 1);
  v1::RowBlock got;
  uint64_t span_ns = 0;
  ASSERT_TRUE(DecodeRows(value, &got, &span_ns).ok());
  EXPECT_EQ(RowTexts(got), RowTexts(block));
}

TEST(RowCodec, DamageIsRefusedOrYieldsAValidBlock) {
  std::mt19937_64 random(9);
  int refused = 0;
  for (int shape = 0; shape < 4; ++shape) {
    const std::string good =
        EncodeRows(Draw({.rows = 40, .orderly = shape % 2 == 0, .totals_match = shape < 2}, 8), 1);
    for (int i = 0; i < 20000; ++i) {
      std::string bad = good;
      if (i % 5 == 0) bad.resize(random() % bad.size());
      for (int flips = i % 4; flips > 0 && !bad.empty(); --flips) {
        // The header more often than chance would have it.
        size_t at = random() % 3 == 0 ? random() % 12 : random();
        bad[at % bad.size()] ^= static_cast<char>(1u << random() % 8);
      }
      v1::RowBlock got;
      uint64_t span_ns = 0;
      if (!DecodeRows(bad, &got, &span_ns).ok()) {
        ++refused;
        continue;
      }
      if (bad[0] != 2) continue;  // encoding 1 is the protobuf's own business
      ASSERT_TRUE(ValidateRowBlock(got, 1 << 22).ok()) << ValidateRowBlock(got, 1 << 22);
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace fleetblame::aggregator
