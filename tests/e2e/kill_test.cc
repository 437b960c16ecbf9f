// SPDX-License-Identifier: Apache-2.0
//
// Agent and aggregator are killed without warning a hundred times under load: nothing that the
// agent had spooled may be lost, and nothing may count twice.
#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "absl/time/clock.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/spool_truth.h"
#include "tests/e2e/synthetic_recording.h"

namespace fleetblame::testing {
namespace {

constexpr int kKills = 100;
constexpr uint64_t kWindowNs = 20'000'000;

TEST(KillTest, NothingLostNothingDouble) {
  Fleet fleet;
  std::string recording = fleet.directory() + "/recording";
  ASSERT_TRUE(WriteSyntheticRecording(recording, 200, kWindowNs).ok());
  auto start_agent = [&] {
    return fleet.StartAgent("alpha",
                            {"--tracer", "replay", "--replay-file", recording, "--replay-loop"});
  };
  std::mt19937 random(20260301);
  auto aggregator = fleet.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  auto agent = start_agent();
  ASSERT_TRUE(agent.ok()) << agent.status();
  uint64_t last_numbered = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    absl::SleepFor(absl::Milliseconds(50 + random() % 600));
    if (random() % 2 == 0) {
      ASSERT_TRUE((*agent)->Stop(SIGKILL).ok());
      // No kill takes back what the spool had.
      auto truth = ReadSpoolTruth(fleet.state_dir("alpha"));
      ASSERT_TRUE(truth.ok()) << truth.status();
      EXPECT_GE(truth->numbered, last_numbered);
      last_numbered = truth->numbered;
      agent = start_agent();
      ASSERT_TRUE(agent.ok()) << agent.status();
    } else {
      ASSERT_TRUE((*aggregator)->Stop(SIGKILL).ok());
      aggregator = fleet.StartAggregator();
      ASSERT_TRUE(aggregator.ok()) << "after " << kill << " kills: " << aggregator.status();
    }
  }
  // Stop making windows, then let everything arrive.
  ASSERT_TRUE((*agent)->Stop(SIGKILL).ok());
  auto truth = ReadSpoolTruth(fleet.state_dir("alpha"));
  ASSERT_TRUE(truth.ok()) << truth.status();
  EXPECT_GT(truth->numbered, 300u) << "too little load to mean anything";
  std::string empty = fleet.directory() + "/empty";
  ASSERT_TRUE(WriteSyntheticRecording(empty, 0, kWindowNs).ok());
  agent = fleet.StartAgent("alpha", {"--tracer", "replay", "--replay-file", empty});
  ASSERT_TRUE(agent.ok()) << agent.status();

  // Every window holds the same bytes: a lost or doubled one changes the sum.
  uint64_t expected = truth->numbered * kBytesPerWindow;
  EXPECT_EQ(fleet.WaitForStoredBytes(expected, absl::Seconds(60)), expected)
      << truth->numbered << " windows, " << truth->waiting << " of them waited\n"
      << (*agent)->Log();
  nlohmann::json coverage = fleet.CliJson({"coverage", "--since", "30d"});
  ASSERT_EQ(coverage["rows"].size(), 1u);
  EXPECT_EQ(coverage["rows"][0]["recorded_bytes"].get<uint64_t>(), expected);
  EXPECT_EQ(coverage["rows"][0]["off_by_bytes"], 0);
  EXPECT_EQ(coverage["summary"]["gaps_total"], 0) << coverage["summary"].dump(2);
}

}  // namespace
}  // namespace fleetblame::testing
