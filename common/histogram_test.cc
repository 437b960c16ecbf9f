// SPDX-License-Identifier: Apache-2.0
#include "common/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fleetblame {
namespace {

TEST(HistogramBuckets, TileTheWholeRangeWithoutHoleOrOverlap) {
  EXPECT_EQ(HistogramLowerNs(0), 0u);
  for (int b = 0; b + 1 < kHistogramBuckets; ++b) {
    EXPECT_EQ(HistogramUpperNs(b), HistogramLowerNs(b + 1)) << b;
    EXPECT_EQ(HistogramBucket(HistogramLowerNs(b)), b);
    EXPECT_EQ(HistogramBucket(HistogramUpperNs(b) - 1), b);
  }
  EXPECT_EQ(HistogramBucket(UINT64_MAX), kHistogramBuckets - 1);
}

TEST(HistogramBuckets, MiddleIsWithinTheStatedError) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(kHistogramFirstOctave,
                                                  kHistogramFirstOctave + kHistogramOctaves);
  for (int i = 0; i < 100000; ++i) {
    auto value = static_cast<uint64_t>(std::exp2(exponent(random)));
    int b = HistogramBucket(value);
    if (b == kHistogramBuckets - 1) continue;
    double middle =
        (static_cast<double>(HistogramLowerNs(b)) + static_cast<double>(HistogramUpperNs(b))) / 2;
    EXPECT_LE(std::abs(middle - static_cast<double>(value)) / static_cast<double>(value), 0.0626);
  }
}

TEST(SparseHistogram, MergeEqualsAddingEverythingToOne) {
  std::mt19937_64 random(11);
  SparseHistogram all, left, right;
  for (int i = 0; i < 5000; ++i) {
    int b = static_cast<int>(random() % kHistogramBuckets);
    all.Add(b, 1);
    (i % 3 == 0 ? left : right).Add(b, 1);
  }
  left.Merge(right);
  EXPECT_EQ(left.entries(), all.entries());
  EXPECT_EQ(left.total(), 5000u);
}

TEST(SparseHistogram, Quantiles) {
  SparseHistogram h;
  EXPECT_EQ(h.QuantileNs(0.5), 0u);
  h.Add(HistogramBucket(1'000'000), 99);
  h.Add(HistogramBucket(50'000'000), 1);
  EXPECT_NEAR(static_cast<double>(h.QuantileNs(0.5)), 1e6, 1e6 * 0.0626);
  EXPECT_NEAR(static_cast<double>(h.QuantileNs(0.99)), 1e6, 1e6 * 0.0626);
  EXPECT_NEAR(static_cast<double>(h.QuantileNs(1.0)), 5e7, 5e7 * 0.0626);
}

}  // namespace
}  // namespace fleetblame
