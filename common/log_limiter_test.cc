// SPDX-License-Identifier: Apache-2.0
#include "common/log_limiter.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace fleetblame {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(10);
const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

TEST(LogLimiter, HoldsBackTheRestOfABurstAndSaysHowMany) {
  LogLimiter limiter(2, kWindow);
  int allowed = 0;
  for (int i = 0; i < 7; ++i) allowed += limiter.Allow("away", kStart);
  EXPECT_EQ(allowed, 2);
  EXPECT_TRUE(limiter.TakeSuppressed(kStart).empty());

  const auto told = limiter.TakeSuppressed(kStart + kWindow);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].message, "away");
  EXPECT_EQ(told[0].count, 5u);
  EXPECT_TRUE(limiter.TakeSuppressed(kStart + kWindow).empty());
}

TEST(LogLimiter, ANewWindowAllowsAgainAndKeepsTheOldCount) {
  LogLimiter limiter(1, kWindow);
  EXPECT_TRUE(limiter.Allow("away", kStart));
  EXPECT_FALSE(limiter.Allow("away", kStart));
  EXPECT_TRUE(limiter.Allow("away", kStart + kWindow));
  const auto told = limiter.TakeSuppressed(kStart + kWindow);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].count, 1u);
}

TEST(LogLimiter, AClockThatJumpsBackDoesNotSilenceAMessage) {
  LogLimiter limiter(1, kWindow);
  EXPECT_TRUE(limiter.Allow("away", kStart));
  EXPECT_TRUE(limiter.Allow("away", kStart - absl::Hours(1)));
}

TEST(LogLimiter, EveryLineOfManyMessagesIsEitherWrittenOrCounted) {
  LogLimiter limiter(3, kWindow);
  std::map<std::string, uint64_t> accounted;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 1000; ++i) {
      const std::string message = absl::StrCat("message ", i);
      if (limiter.Allow(message, kStart)) ++accounted[message];
      for (const auto& told : limiter.TakeSuppressed(kStart)) accounted[told.message] += told.count;
    }
  }
  for (const auto& told : limiter.TakeSuppressed(kStart + kWindow))
    accounted[told.message] += told.count;
  ASSERT_EQ(accounted.size(), 1000u);
  for (const auto& [message, count] : accounted) EXPECT_EQ(count, 10u) << message;
}

}  // namespace
}  // namespace fleetblame
