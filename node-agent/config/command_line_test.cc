// SPDX-License-Identifier: Apache-2.0
#include "node-agent/config/command_line.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

AgentConfig Parse(std::vector<std::string> arguments) {
  auto parsed = ParseCommandLine(std::move(arguments));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->config : AgentConfig();
}

// The sentence that the arguments are refused with.
std::string Refusal(std::vector<std::string> arguments) {
  auto parsed = ParseCommandLine(std::move(arguments));
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

std::string WriteConfig(const std::string& text) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = absl::StrCat(base != nullptr ? base : "/tmp", "/agent-config-test.toml");
  std::ofstream(path) << text;
  return path;
}

TEST(CommandLineTest, WhatCostsEveryContextSwitchIsAskedFor) {
  EXPECT_FALSE(Parse({"--aggregator", "a:1"}).infer_tag_waits);
  EXPECT_EQ(Parse({"--aggregator", "a:1"}).sample_above, 10000u);
  EXPECT_EQ(Parse({"--aggregator", "a:1", "--sample-above", "0"}).sample_above, 0u);
  EXPECT_TRUE(Parse({"--aggregator", "a:1", "--infer-tag-waits=true"}).infer_tag_waits);
}

TEST(CommandLineTest, AConfigurationFileHasAnEnd) {
  EXPECT_THAT(Refusal({"--config", "/dev/zero"}), HasSubstr("/dev/zero is not a regular file"));
}

TEST(CommandLineTest, TheLockOfTheHostIsNotThatOfTheState) {
  for (const char* lock : {"/var/x/lock", "/var/x/../x/lock", "/var//x/lock"}) {
    EXPECT_THAT(Refusal({"--aggregator", "a:1", "--state-dir", "/var/x/", "--lock-file", lock}),
                HasSubstr("--lock-file: "));
  }
  EXPECT_EQ(
      Parse({"--aggregator", "a:1", "--state-dir", "/var/x", "--lock-file", "/var/x/host.lock"})
          .lock_file,
      "/var/x/host.lock");
}

TEST(CommandLineTest, TextsThatTheWireWouldNotCarry) {
  const auto with = [](const char* flag, const std::string& value) {
    return Refusal({"--aggregator", "a:1", flag, value});
  };
  EXPECT_THAT(with("--hostname", "a\xff"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(with("--hostname", "a\nb"), HasSubstr("control characters"));
  EXPECT_THAT(with("--hostname", std::string(256, 'a')), HasSubstr("longer than 255"));
  EXPECT_THAT(with("--label", "a=\xff"), HasSubstr("label a is not UTF-8"));
  EXPECT_THAT(with("--label", "host=x"), HasSubstr("a label host of its own"));
  EXPECT_THAT(Refusal({"--aggregator", "a:1", "--label", "a=1", "--label", "a=2"}),
              HasSubstr("given twice"));
}

TEST(CommandLineTest, WhatCannotWorkIsRefusedBeforeTheStart) {
  const auto with = [](const char* flag, const std::string& value) {
    return Refusal({"--aggregator", "a:1", flag, value});
  };
  EXPECT_THAT(with("--devices", "sda,/dev/sdb"), HasSubstr("write sda, not /dev/sda"));
  EXPECT_THAT(with("--devices", "!!"), HasSubstr("--devices: device pattern \"!!\""));
  EXPECT_THAT(with("--metrics-address", "x:y"), HasSubstr("--metrics-address: "));
  EXPECT_THAT(with("--tls-server-name", "x"), HasSubstr("--tls-ca"));
  EXPECT_THAT(with("--trace-events-per-second", "-5"), HasSubstr("--trace-events-per-second"));
  EXPECT_THAT(with("--config", WriteConfig("colour = 1\n")), HasSubstr("no such setting"));
}

TEST(CommandLineTest, Defaults) {
  const AgentConfig config = Parse({"--aggregator", "localhost:7443"});
  EXPECT_EQ(config.aggregator, "localhost:7443");
  EXPECT_EQ(config.window, absl::Seconds(10));
  EXPECT_EQ(config.tracer, TracerKind::kBpf);
  EXPECT_EQ(config.spool_max_bytes, 256u << 20);
  EXPECT_TRUE(config.spool_sync);
  EXPECT_TRUE(config.devices.empty());
  EXPECT_TRUE(config.metrics_address.empty());
  EXPECT_FALSE(config.tls.enabled());
}

TEST(CommandLineTest, Flags) {
  const AgentConfig config = Parse({"--aggregator=[::1]:7443",
                                    "--devices",
                                    "sda,nvme*",
                                    "--devices",
                                    "!sdb",
                                    "--window",
                                    "2s",
                                    "--label",
                                    "role=db",
                                    "--label",
                                    "dc=fra=1",
                                    "--spool-max-bytes",
                                    "1GiB",
                                    "--ttl",
                                    "1m",
                                    "--max-intents",
                                    "100",
                                    "--refuse",
                                    "trace,window",
                                    "--log-level",
                                    "debug",
                                    "--log-format",
                                    "json",
                                    "--spool-sync=false"});
  EXPECT_THAT(config.devices, ElementsAre("sda", "nvme*", "!sdb"));
  EXPECT_EQ(config.window, absl::Seconds(2));
  EXPECT_EQ(config.labels.at("role"), "db");
  EXPECT_EQ(config.labels.at("dc"), "fra=1");
  EXPECT_EQ(config.spool_max_bytes, uint64_t{1} << 30);
  EXPECT_EQ(config.limits.ttl, absl::Minutes(1));
  EXPECT_EQ(config.limits.max_intents, 100u);
  EXPECT_TRUE(config.refuse_trace);
  EXPECT_TRUE(config.refuse_window);
  EXPECT_FALSE(config.refuse_devices);
  EXPECT_EQ(config.log_format, LogFormat::kJson);
  EXPECT_FALSE(config.spool_sync);
}

TEST(CommandLineTest, ReplayFlags) {
  const AgentConfig config =
      Parse({"--aggregator", "a:1", "--tracer", "replay", "--replay-file", "/r", "--replay-speed",
             "0", "--replay-kaslr-shift", "0x1a000000", "--replay-rewrite", "^a$=b.isra.0",
             "--replay-module", "^ext4_=ext4", "--replay-module", "^x_=", "--replay-seed", "42"});
  EXPECT_EQ(config.tracer, TracerKind::kReplay);
  EXPECT_EQ(config.replay.kaslr_shift, 0x1a000000);
  EXPECT_EQ(config.replay.seed, 42u);
  EXPECT_THAT(config.replay.symbol_rewrites, ElementsAre(testing::Pair("^a$", "b.isra.0")));
  EXPECT_THAT(config.replay.module_rewrites,
              ElementsAre(testing::Pair("^ext4_", "ext4"), testing::Pair("^x_", "")));
}

TEST(CommandLineTest, AFileIsReadAndFlagsBeatIt) {
  const std::string path = WriteConfig(
      "aggregator = \"from-file:1\"\n"
      "window = \"30s\"\n"
      "devices = [\"sd*\", \"!sda\"]\n"
      "label = [\"role=db\", \"dc=fra1\"]\n"
      "max-files = 7\n"
      "spool-sync = false\n");
  const AgentConfig config = Parse({"--config", path, "--window", "5s"});
  EXPECT_EQ(config.aggregator, "from-file:1");
  EXPECT_EQ(config.window, absl::Seconds(5));
  EXPECT_THAT(config.devices, ElementsAre("sd*", "!sda"));
  EXPECT_EQ(config.labels.size(), 2u);
  EXPECT_EQ(config.limits.max_files, 7u);
  EXPECT_FALSE(config.spool_sync);
}

TEST(CommandLineTest, UnknownKeysAndFlagsAreRefusedByName) {
  const std::string path = WriteConfig("aggregator = \"a:1\"\nwindwo = \"30s\"\n");
  EXPECT_THAT(Refusal({"--config", path}), HasSubstr("windwo"));
  EXPECT_THAT(Refusal({"--aggregator", "a:1", "--windwo", "3s"}), HasSubstr("windwo"));
  EXPECT_THAT(Refusal({"--config", "/nonexistent.toml"}), HasSubstr("/nonexistent.toml"));
}

TEST(CommandLineTest, EachMistakeIsOneSentenceWithTheFlag) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--aggregator"},
      {{"--aggregator", "nohost"}, "--aggregator"},
      {{"--aggregator", "host:99999"}, "--aggregator"},
      {{"--aggregator", "::1:7443"}, "--aggregator"},
      {{"--aggregator", "a:1", "--window", "10"}, "--window"},
      {{"--aggregator", "a:1", "--window", "500ms"}, "--window"},
      {{"--aggregator", "a:1", "--window", "2h"}, "--window"},
      {{"--aggregator", "a:1", "--label", "nonsense"}, "--label"},
      {{"--aggregator", "a:1", "--label", "1x=y"}, "--label"},
      {{"--aggregator", "a:1", "--label", "x=a\nb"}, "--label"},
      {{"--aggregator", "a:1", "--tracer", "magic"}, "--tracer"},
      {{"--aggregator", "a:1", "--tracer", "replay"}, "--replay-file"},
      {{"--aggregator", "a:1", "--replay-file", "x"}, "--replay-file"},
      {{"--aggregator", "a:1", "--tls-cert", "x"}, "--tls-cert"},
      {{"--aggregator", "a:1", "--host-id", "a b"}, "host id"},
      {{"--aggregator", "a:1", "--spool-max-bytes", "10"}, "--spool-max-bytes"},
      {{"--aggregator", "a:1", "--spool-max-bytes", "1XiB"}, "--spool-max-bytes"},
      {{"--aggregator", "a:1", "--max-intents", "3"}, "--max-intents"},
      {{"--aggregator", "a:1", "--max-intents", "many"}, "--max-intents"},
      {{"--aggregator", "a:1", "--refuse", "everything"}, "--refuse"},
      {{"--aggregator", "a:1", "--log-level", "loud"}, "--log-level"},
      {{"--aggregator", "a:1", "--ttl", "0s"}, "--ttl"},
  };
  for (const auto& [arguments, expected] : cases) {
    const std::string sentence = Refusal(arguments);
    EXPECT_THAT(sentence, HasSubstr(expected));
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  }
}

TEST(CommandLineTest, HelpAndVersionOnlyPrint) {
  auto help = ParseCommandLine({"--help"});
  ASSERT_TRUE(help.ok());
  ASSERT_TRUE(help->print.has_value());
  EXPECT_THAT(*help->print, HasSubstr("Exit codes"));
  EXPECT_THAT(*help->print, HasSubstr("--spool-max-bytes"));
  auto version = ParseCommandLine({"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_THAT(version->print.value_or(""), HasSubstr("fleetblame-agent "));
}

TEST(CommandLineTest, CheckNeedsNoAggregator) { EXPECT_TRUE(Parse({"--check"}).check); }

}  // namespace
}  // namespace fleetblame::agent
