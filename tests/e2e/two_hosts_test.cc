// SPDX-License-Identifier: Apache-2.0
//
// One intent, many kernels: agents whose kernels were loaded elsewhere, built by another compiler
// or keep ext4 in a module must be seen to do the same thing.
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "tests/e2e/fleet.h"
#include "tests/e2e/synthetic_recording.h"

namespace fleetblame::testing {
namespace {

constexpr int kWindows = 5;

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteSyntheticRecording(recording_, kWindows, 1'000'000'000).ok());
    auto aggregator = fleet_.StartAggregator();
    ASSERT_TRUE(aggregator.ok()) << aggregator.status();
    aggregator_ = *std::move(aggregator);
  }

  void Play(const std::string& host, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--tracer", "replay", "--replay-file", recording_, "--replay-speed",
                               "0", "--replay-clock", "end-now"});
    auto agent = fleet_.StartAgent(host, flags);
    ASSERT_TRUE(agent.ok()) << agent.status();
    agents_.push_back(*std::move(agent));
  }

  std::string Logs() const {
    std::string all = aggregator_->Log();
    for (const auto& agent : agents_) all += agent->Log();
    return all;
  }

  Fleet fleet_;
  std::string recording_ = fleet_.directory() + "/recording";
  std::unique_ptr<Daemon> aggregator_;
  std::vector<std::unique_ptr<Daemon>> agents_;
};

TEST_F(TwoHostsTest, OtherKaslrBaseCompilerSuffixAndModuleAreOneIntent) {
  Play("alpha", {"--label", "role=db"});
  Play("beta", {"--replay-kaslr-shift", "0x1a000000", "--replay-rewrite",
                "^generic_perform_write$=generic_perform_write.isra.0", "--replay-module",
                "^ext4_=ext4", "--replay-seed", "42", "--label", "role=web"});
  uint64_t expected = 2 * kWindows * kBytesPerWindow;
  ASSERT_EQ(fleet_.WaitForStoredBytes(expected, absl::Seconds(60)), expected) << Logs();

  nlohmann::json top = fleet_.CliJson({"top", "--by", "intent", "--dirtier"});
  ASSERT_EQ(top["rows"].size(), 1u) << top.dump(2);
  EXPECT_EQ(top["rows"][0]["hosts"], 2);
  EXPECT_EQ(top["rows"][0]["bytes"], expected);

  std::string id = top["rows"][0]["intent"];
  nlohmann::json intent = fleet_.CliJson({"intent", id.substr(0, 12)});
  EXPECT_EQ(intent["intent"], id);
  EXPECT_EQ(intent["reason"], "background");
  EXPECT_EQ(intent["frames"][0], "ext4_da_write_end");
  // Both looks are kept: nothing is lost by canonicalisation.
  std::set<std::string> modules, symbols;
  for (const auto& variant : intent["variants"]) {
    for (const auto& frame : variant["frames"]) {
      modules.insert(frame["module"].get<std::string>());
      symbols.insert(frame["symbol"].get<std::string>());
    }
  }
  EXPECT_TRUE(modules.contains("ext4")) << intent.dump(2);
  EXPECT_TRUE(symbols.contains("generic_perform_write.isra.0")) << intent.dump(2);
  EXPECT_TRUE(symbols.contains("generic_perform_write")) << intent.dump(2);

  // Labels choose hosts.
  nlohmann::json db = fleet_.CliJson({"top", "--by", "host", "--hosts", "{role=\"db\"}"});
  ASSERT_EQ(db["rows"].size(), 1u);
  EXPECT_EQ(db["rows"][0]["host"], "alpha");
  EXPECT_EQ(db["rows"][0]["bytes"], expected / 2);
}

TEST_F(TwoHostsTest, EveryQueryAnswersAboutWhatWasStored) {
  Play("alpha", {});
  uint64_t expected = kWindows * kBytesPerWindow;
  ASSERT_EQ(fleet_.WaitForStoredBytes(expected, absl::Seconds(60)), expected) << Logs();

  nlohmann::json hosts = fleet_.CliJson({"hosts"});
  ASSERT_EQ(hosts["hosts"].size(), 1u);
  EXPECT_EQ(hosts["hosts"][0]["host"], "alpha");
  EXPECT_EQ(hosts["hosts"][0]["written_bytes"], expected);

  nlohmann::json devices = fleet_.CliJson({"hosts", "--devices"});
  ASSERT_EQ(devices["devices"].size(), 1u) << devices.dump(2);
  EXPECT_EQ(devices["devices"][0]["host"], "alpha");
  EXPECT_EQ(devices["devices"][0]["written_bytes"], expected);
  EXPECT_TRUE(devices["devices"][0]["device_info"].contains("persistent_id"));

  nlohmann::json by_comm = fleet_.CliJson({"top", "--by", "comm"});
  ASSERT_EQ(by_comm["rows"].size(), 2u);
  EXPECT_EQ(
      by_comm["rows"][0]["bytes"].get<uint64_t>() + by_comm["rows"][1]["bytes"].get<uint64_t>(),
      expected);
  nlohmann::json issuer = fleet_.CliJson({"top", "--by", "comm", "--issuer"});
  ASSERT_EQ(issuer["rows"].size(), 1u);
  EXPECT_EQ(issuer["rows"][0]["comm"], "kworker");
  EXPECT_NEAR(issuer["rows"][0]["io_p50_ns"].get<double>(), 300'000, 300'000 * 0.0625);

  nlohmann::json search = fleet_.CliJson({"search", "^sys_pwrite64$"});
  ASSERT_EQ(search["matches"].size(), 1u) << search.dump(2);
  nlohmann::json series = fleet_.CliJson({"series", "--by", "comm"});
  uint64_t total = 0;
  for (const auto& line : series["lines"]) total += line["total"]["bytes"].get<uint64_t>();
  EXPECT_EQ(total, expected);
  nlohmann::json coverage = fleet_.CliJson({"coverage"});
  ASSERT_EQ(coverage["rows"].size(), 1u);
  EXPECT_EQ(coverage["rows"][0]["off_by_bytes"], 0);
  EXPECT_EQ(coverage["rows"][0]["kernel_bytes"], expected);
  nlohmann::json files = fleet_.CliJson({"top", "--by", "file"});
  EXPECT_EQ(files["rows"][0]["file"], "/var/lib/data/base");
  nlohmann::json compare =
      fleet_.CliJson({"compare", search["matches"][0]["intent"].get<std::string>()});
  ASSERT_EQ(compare["hosts"].size(), 1u);

  // The same as tables and CSV: exit code 0 and the names in it.
  for (const char* output : {"table", "csv"}) {
    CliResult top = fleet_.Cli({"top", "--output", output});
    EXPECT_EQ(top.exit_code, 0) << top.err;
    EXPECT_NE(top.out.find("postgres"), std::string::npos) << top.out;
    CliResult of_hosts = fleet_.Cli({"hosts", "--devices", "--output", output});
    EXPECT_EQ(of_hosts.exit_code, 0) << of_hosts.err;
    EXPECT_NE(of_hosts.out.find("alpha"), std::string::npos) << of_hosts.out;
  }
}

}  // namespace
}  // namespace fleetblame::testing
