// SPDX-License-Identifier: Apache-2.0
//
// The aggregator goes away for a minute and comes back; agents and command line must take it as
// the normal thing that it is.
#include <gtest/gtest.h>

#include <csignal>

#include "absl/time/clock.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/spool_truth.h"
#include "tests/e2e/synthetic_recording.h"

namespace fleetblame::testing {
namespace {

constexpr absl::Duration kOutage = absl::Seconds(60);

TEST(OutageTest, SpoolsForAMinuteThenEverythingArrives) {
  Fleet fleet;
  std::string recording = fleet.directory() + "/recording";
  constexpr int kWindows = 700;  // 70 s of 100 ms
  ASSERT_TRUE(WriteSyntheticRecording(recording, kWindows, 100'000'000).ok());
  auto aggregator = fleet.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  auto agent = fleet.StartAgent("alpha", {"--tracer", "replay", "--replay-file", recording});
  ASSERT_TRUE(agent.ok()) << agent.status();
  absl::SleepFor(absl::Seconds(3));
  uint64_t before = fleet.StoredBytes();
  EXPECT_GT(before, 0u) << (*agent)->Log();

  auto stopped = (*aggregator)->Stop(SIGTERM);
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(*stopped, 0) << (*aggregator)->Log();
  CliResult away = fleet.Cli({"top"});
  EXPECT_EQ(away.exit_code, 3);
  EXPECT_NE(away.err.find("no aggregator answers"), std::string::npos) << away.err;
  absl::SleepFor(kOutage);

  aggregator = fleet.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  // The replay ends once everything was delivered.
  auto ended = (*agent)->WaitForExit();
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(*ended, 0) << (*agent)->Log();
  EXPECT_EQ(fleet.StoredBytes(), kWindows * kBytesPerWindow);
  auto truth = ReadSpoolTruth(fleet.state_dir("alpha"));
  ASSERT_TRUE(truth.ok());
  EXPECT_EQ(truth->waiting, 0u);
}

}  // namespace
}  // namespace fleetblame::testing
