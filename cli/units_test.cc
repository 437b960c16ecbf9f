// SPDX-License-Identifier: Apache-2.0
#include "cli/units.h"

#include <gtest/gtest.h>

namespace fleetblame::cli {
namespace {

TEST(HumanBytes, ThreeDigitsAtMost) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(812), "812 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(4096), "4.0 KiB");
  EXPECT_EQ(HumanBytes(611.0 * 1024 * 1024), "611 MiB");
  EXPECT_EQ(HumanBytes(1023.9 * 1024 * 1024), "1.0 GiB");
  EXPECT_EQ(HumanBytes(18.4e18), "16 EiB");
}

TEST(HumanNs, PicksTheUnit) {
  EXPECT_EQ(HumanNs(0), "0");
  EXPECT_EQ(HumanNs(999), "<1 µs");
  EXPECT_EQ(HumanNs(4'200), "4.2 µs");
  EXPECT_EQ(HumanNs(18'000'000), "18 ms");
  EXPECT_EQ(HumanNs(999'700'000), "1.0 s");
  EXPECT_EQ(HumanNs(61'000'000'000), "61 s");
}

TEST(HumanCount, Separates) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(5812), "5,812");
  EXPECT_EQ(HumanCount(21'300'000), "21,300,000");
}

TEST(HumanPercent, NeverRoundsARemainderAway) {
  EXPECT_EQ(HumanPercent(1, 0), "-");
  EXPECT_EQ(HumanPercent(1, 1), "100 %");
  EXPECT_EQ(HumanPercent(99'999, 100'000), ">99.9 %");
  EXPECT_EQ(HumanPercent(1, 100'000), "<0.1 %");
  EXPECT_EQ(HumanPercent(962, 1000), "96.2 %");
  EXPECT_EQ(HumanPercent(0, 10), "0 %");
}

TEST(HumanSpan, TwoUnitsAtMost) {
  EXPECT_EQ(HumanSpan(45'000'000'000), "45 s");
  EXPECT_EQ(HumanSpan(600'000'000'000), "10 min");
  EXPECT_EQ(HumanSpan(9'000'000'000'000), "2 h 30 min");
  EXPECT_EQ(HumanSpan(uint64_t{7} * 86400 * 1'000'000'000), "7 d");
}

TEST(HumanTime, IsUtc) { EXPECT_EQ(HumanTime(1'767'225'600'000'000'000), "2026-01-01 00:00:00"); }

}  // namespace
}  // namespace fleetblame::cli
