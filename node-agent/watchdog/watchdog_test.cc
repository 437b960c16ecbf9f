// SPDX-License-Identifier: Apache-2.0
#include "node-agent/watchdog/watchdog.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace fleetblame::agent {
namespace {

// A process that uses CPU at a given rate, observed every five seconds.
class WatchdogTest : public testing::Test {
 protected:
  // Runs for `duration` at `percent` of a core; returns the step afterwards.
  int Run(absl::Duration duration, double percent, uint64_t rss = 1 << 20) {
    for (absl::Duration passed; passed < duration; passed += absl::Seconds(5)) {
      now_ += absl::Seconds(5);
      cpu_ += absl::Seconds(5) * percent / 100;
      watchdog_.Observe(now_, {cpu_, rss});
    }
    return watchdog_.step();
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Duration cpu_;
  Watchdog watchdog_{{.max_cpu_percent = 10, .max_rss_bytes = 64u << 20}};
};

TEST_F(WatchdogTest, WithinTheBudgetNothingIsShed) {
  EXPECT_EQ(Run(absl::Hours(1), 9), 0);
  EXPECT_NEAR(watchdog_.cpu_percent(), 9, 0.1);
  EXPECT_EQ(watchdog_.window_factor(), 1);
  EXPECT_TRUE(watchdog_.files() && watchdog_.trace() && watchdog_.tracer());
}

TEST_F(WatchdogTest, AShortBurstIsForgiven) {
  Run(absl::Minutes(2), 1);
  EXPECT_EQ(Run(absl::Seconds(5), 100), 0);
  EXPECT_EQ(Run(absl::Minutes(2), 1), 0);
}

TEST_F(WatchdogTest, ShedsStepByStepAndSaysWhy) {
  EXPECT_EQ(Run(absl::Seconds(70), 50), 1);
  EXPECT_EQ(watchdog_.window_factor(), 2);
  EXPECT_NE(watchdog_.reason().find("50.0 % of a core"), std::string::npos) << watchdog_.reason();
  EXPECT_EQ(Run(absl::Seconds(60), 50), 2);
  EXPECT_EQ(watchdog_.window_factor(), 6);
  EXPECT_FALSE(watchdog_.files());
  EXPECT_EQ(Run(absl::Seconds(60), 50), 3);
  EXPECT_FALSE(watchdog_.trace());
  EXPECT_EQ(Run(absl::Seconds(60), 50), 4);
  EXPECT_FALSE(watchdog_.tracer());
  EXPECT_EQ(Run(absl::Hours(1), 50), 4);
}

TEST_F(WatchdogTest, ComesBackSlowly) {
  Run(absl::Seconds(130), 50);
  ASSERT_EQ(watchdog_.step(), 2);
  EXPECT_EQ(Run(absl::Minutes(4), 1), 2);
  EXPECT_EQ(Run(absl::Minutes(3), 1), 1);
  EXPECT_EQ(Run(absl::Minutes(5), 1), 0);
}

TEST_F(WatchdogTest, MemoryCountsToo) {
  EXPECT_EQ(Run(absl::Seconds(5), 1, 100u << 20), 1);
  EXPECT_NE(watchdog_.reason().find("resident"), std::string::npos);
}

TEST(WatchdogLimitsTest, ZeroMeansNoLimit) {
  Watchdog watchdog({.max_cpu_percent = 0, .max_rss_bytes = 0});
  absl::Time now = absl::FromUnixSeconds(1);
  for (int i = 0; i < 100; ++i) {
    now += absl::Seconds(5);
    watchdog.Observe(now, {absl::Seconds(5 * i), uint64_t{1} << 40});
  }
  EXPECT_EQ(watchdog.step(), 0);
}

TEST(ReadUsageTest, ReadsThisProcess) {
  const auto usage = ReadUsage("/proc/self");
  ASSERT_TRUE(usage.has_value());
  EXPECT_GT(usage->rss_bytes, 100'000u);
  EXPECT_LT(usage->cpu, absl::Hours(1));
}

TEST(ReadUsageTest, NamesWithParenthesesAndMissingFiles) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string directory = std::string(base != nullptr ? base : "/tmp") + "/watchdog-proc";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/stat")
      << "12 (a) b (c) S 1 1 1 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 9 0 100 1000000 77 "
         "18446744073709551615 1 1";
  const auto usage = ReadUsage(directory);
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->cpu, absl::Seconds(4));
  EXPECT_EQ(usage->rss_bytes, 77u * 4096);
  std::ofstream(directory + "/stat") << "12 (cut";
  EXPECT_FALSE(ReadUsage(directory).has_value());
  EXPECT_FALSE(ReadUsage("/nonexistent").has_value());
}

}  // namespace
}  // namespace fleetblame::agent
