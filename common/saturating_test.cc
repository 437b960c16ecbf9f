// SPDX-License-Identifier: Apache-2.0
#include "common/saturating.h"

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

constexpr uint64_t kMost = UINT64_MAX;

TEST(SaturatingTest, SumsStayAtTheLargestNumber) {
  EXPECT_EQ(SaturatingAdd(2, 3), 5u);
  EXPECT_EQ(SaturatingAdd(kMost - 1, 1), kMost);
  EXPECT_EQ(SaturatingAdd(kMost, 1), kMost);
  EXPECT_EQ(SaturatingAdd(uint64_t{1} << 63, uint64_t{1} << 63), kMost);
  uint64_t sum = kMost - 5;
  Grow(&sum, 5);
  Grow(&sum, 5);
  EXPECT_EQ(sum, kMost);
}

TEST(SaturatingTest, DifferencesOfAnySize) {
  EXPECT_EQ(SaturatingDifference(5, 3), 2);
  EXPECT_EQ(SaturatingDifference(3, 5), -2);
  EXPECT_EQ(SaturatingDifference(kMost, kMost - 7), 7);
  EXPECT_EQ(SaturatingDifference(kMost - 7, kMost), -7);
  EXPECT_EQ(SaturatingDifference(kMost, 0), INT64_MAX);
  EXPECT_EQ(SaturatingDifference(0, kMost), INT64_MIN);
  EXPECT_EQ(SaturatingDifference(uint64_t{1} << 63, 0), INT64_MAX);
  EXPECT_EQ(SaturatingDifference(0, uint64_t{1} << 63), INT64_MIN);
}

}  // namespace
}  // namespace fleetblame
