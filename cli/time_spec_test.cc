// SPDX-License-Identifier: Apache-2.0
#include "cli/time_spec.h"

#include <gtest/gtest.h>

namespace fleetblame::cli {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(ParseDuration, AcceptsWhatPeopleType) {
  EXPECT_EQ(*ParseDuration("90s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("10m"), absl::Minutes(10));
  EXPECT_EQ(*ParseDuration("2h30m"), absl::Minutes(150));
  EXPECT_EQ(*ParseDuration("7d"), absl::Hours(168));
  EXPECT_EQ(*ParseDuration("1w1d12h"), absl::Hours(204));
}

TEST(ParseDuration, RefusesTheRestWithTheWayOut) {
  for (const char* bad :
       {"", "10", "-5m", "0s", "d", "1d1d", "inf", "ten minutes", "5y", "99999999d"}) {
    auto result = ParseDuration(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_NE(result.status().message().find("2h30m"), std::string_view::npos);
  }
}

TEST(ParseTime, AcceptsAgoAbsoluteAndUnix) {
  EXPECT_EQ(*ParseTime("now", kNow), kNow);
  EXPECT_EQ(*ParseTime("10m", kNow), kNow - absl::Minutes(10));
  EXPECT_EQ(*ParseTime("now-1h", kNow), kNow - absl::Hours(1));
  EXPECT_EQ(*ParseTime("@1767225600", kNow), absl::FromUnixSeconds(1767225600));
  absl::Time expected =
      absl::FromCivil(absl::CivilSecond(2026, 3, 1, 14, 0, 0), absl::UTCTimeZone());
  EXPECT_EQ(*ParseTime("2026-03-01T14:00:00Z", kNow), expected);
  EXPECT_EQ(*ParseTime("2026-03-01 14:00", kNow), expected);
  EXPECT_EQ(*ParseTime("2026-03-01T15:00:00+01:00", kNow), expected);
}

TEST(ParseTime, RefusesTheRest) {
  for (const char* bad : {"", "yesterday", "@x", "@-1", "2026-13-01", "14:00"}) {
    EXPECT_FALSE(ParseTime(bad, kNow).ok()) << bad;
  }
}

}  // namespace
}  // namespace fleetblame::cli
