// SPDX-License-Identifier: Apache-2.0
#include "cli/bars.h"

#include <gtest/gtest.h>

#include "common/histogram.h"

namespace fleetblame::cli {
namespace {

TEST(Sparkline, HeightsAreRelativeAndOnlyZeroIsBlank) {
  EXPECT_EQ(Sparkline({}), "");
  EXPECT_EQ(Sparkline({0, 0}), "  ");
  EXPECT_EQ(Sparkline({0, 0.001, 4, 8}), " ▁▄█");
}

TEST(Bar, FillsInEighths) {
  EXPECT_EQ(Bar(0, 10, 4), "");
  EXPECT_EQ(Bar(10, 10, 4), "████");
  EXPECT_EQ(Bar(5, 10, 4), "██");
  EXPECT_EQ(Bar(0.001, 10, 4), "▏");
  EXPECT_EQ(Bar(20, 10, 4), "████");
}

TEST(HistogramSpark, PlacesDurationsOnAFixedAxis) {
  v1::Histogram h;
  h.add_buckets(static_cast<uint32_t>(HistogramBucket(500)));
  h.add_counts(1);
  h.add_buckets(static_cast<uint32_t>(HistogramBucket(uint64_t{1} << 33)));
  h.add_counts(8);
  EXPECT_EQ(HistogramSpark(h), "▁          █");
  EXPECT_EQ(HistogramSpark(v1::Histogram()), std::string(12, ' '));
}

}  // namespace
}  // namespace fleetblame::cli
