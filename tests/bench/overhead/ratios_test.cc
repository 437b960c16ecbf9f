// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/ratios.h"

#include <gtest/gtest.h>

namespace fleetblame::testing {
namespace {

TEST(RatiosTest, OddCountTakesTheMiddle) {
  const Summary summary = Summarize({3, 1, 2});
  EXPECT_EQ(summary.median, 2);
  EXPECT_EQ(summary.low, 1);
  EXPECT_EQ(summary.high, 3);
  EXPECT_EQ(summary.count, 3);
}

TEST(RatiosTest, EvenCountTakesTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Summarize({4, 1, 2, 3}).median, 2.5);
}

TEST(RatiosTest, NothingIsNothing) { EXPECT_EQ(Summarize({}).count, 0); }

}  // namespace
}  // namespace fleetblame::testing
