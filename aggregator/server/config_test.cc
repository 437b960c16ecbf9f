// SPDX-License-Identifier: Apache-2.0
#include "aggregator/server/config.h"

#include <fstream>
#include <vector>

#include "aggregator/server/exit_code.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

CommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "fleetblame-aggregator");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

std::string WriteConfig(const std::string& text) {
  std::string path = testing::TempDir() + "/aggregator.toml";
  std::ofstream(path) << text;
  return path;
}

TEST(Config, DefaultsAreSafe) {
  CommandLine line = Parse({});
  EXPECT_EQ(line.exit_code, -1);
  EXPECT_EQ(line.config.listen, "127.0.0.1:7443");
  EXPECT_FALSE(line.config.insecure);
  EXPECT_TRUE(line.config.tls_bind_hosts);
}

TEST(Config, AddressesAndNumbersThatWouldBeTakenForOthersAreRefused) {
  for (const char* listen : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "[::1]:x", "x", ":1"}) {
    EXPECT_EQ(Parse({"--listen", listen}).exit_code, kExitUsage) << listen;
  }
  for (const char* listen : {"127.0.0.1:0", "localhost:7443", "[::1]:7443", "unix:/run/x"}) {
    EXPECT_EQ(Parse({"--listen", listen}).exit_code, -1) << listen;
  }
  for (const char* metrics : {"x:y", "127.0.0.1:99999", ":7444"}) {
    EXPECT_EQ(Parse({"--metrics-address", metrics}).exit_code, kExitUsage) << metrics;
  }
  for (const char* agents : {"0", "-5", "1000001"}) {
    EXPECT_EQ(Parse({"--max-agents", agents}).exit_code, kExitUsage) << agents;
  }
}

TEST(Config, FlagsAreRead) {
  CommandLine line =
      Parse({"--listen", "[::1]:9", "--data-dir", "/tmp/x", "--retention-raw", "36h",
             "--retention-1d", "2y", "--memory-limit", "2GiB", "--max-message-bytes", "1m",
             "--log-level", "debug", "--log-format", "json", "--check", "--metrics-address", ""});
  ASSERT_EQ(line.exit_code, -1);
  EXPECT_EQ(line.config.listen, "[::1]:9");
  EXPECT_EQ(line.config.retention_ns[0], 36ull * 3600 * 1'000'000'000);
  EXPECT_EQ(line.config.retention_ns[1], 0u);
  EXPECT_EQ(line.config.retention_ns[5], 2ull * 366 * 86400 * 1'000'000'000);
  EXPECT_EQ(line.config.memory_limit_bytes, 2ull << 30);
  EXPECT_EQ(line.config.max_message_bytes, 1u << 20);
  EXPECT_EQ(line.config.log_level, LogLevel::kDebug);
  EXPECT_EQ(line.config.log_format, LogFormat::kJson);
  EXPECT_TRUE(line.config.check);
  EXPECT_TRUE(line.config.metrics_address.empty());
}

TEST(Config, FileIsReadAndFlagsWin) {
  std::string path = WriteConfig(
      "# comment\n"
      "listen = \"127.0.0.1:9000\"\n"
      "data-dir = \"/srv/fleetblame\"\n"
      "retention-raw = \"2d\"\n"
      "tls-bind-hosts = false\n"
      "insecure = true\n");
  CommandLine line = Parse({"--config", path.c_str(), "--data-dir", "/elsewhere"});
  ASSERT_EQ(line.exit_code, -1);
  EXPECT_EQ(line.config.listen, "127.0.0.1:9000");
  EXPECT_EQ(line.config.data_dir, "/elsewhere");
  EXPECT_FALSE(line.config.tls_bind_hosts);
  EXPECT_EQ(line.config.retention_ns[0], 2ull * 86400 * 1'000'000'000);
  EXPECT_TRUE(line.config.insecure);
}

TEST(Config, MistakesAreUsageErrors) {
  EXPECT_EQ(Parse({"--listne", "x"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--retention-raw", "soon"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--memory-limit", "1MiB"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--max-message-bytes", "1GiB"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--log-level", "loud"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--config", "/nonexistent.toml"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--config", "/dev/zero"}).exit_code, kExitUsage);
  std::string typo = WriteConfig("lisen = \"127.0.0.1:9000\"\n");
  EXPECT_EQ(Parse({"--config", typo.c_str()}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--help"}).exit_code, kExitOk);
  EXPECT_EQ(Parse({"--version"}).exit_code, kExitOk);
}

TEST(Config, OthersMayReachItOnlyWithTlsOrOnPurpose) {
  EXPECT_EQ(Parse({"--listen", "0.0.0.0:7443"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--listen", "[::]:7443"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--listen", "127.example.com:7443"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--listen", "0.0.0.0:7443", "--insecure"}).exit_code, -1);
  EXPECT_EQ(Parse({"--listen", "0.0.0.0:7443", "--tls-cert", "c", "--tls-key", "k"}).exit_code, -1);
  EXPECT_EQ(Parse({"--tls-cert", "c"}).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--tls-client-ca", "c"}).exit_code, kExitUsage);
}

TEST(Config, Loopback) {
  for (const char* address :
       {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1", "unix:/run/x"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"0.0.0.0:1", ":1", "[::]:1", "10.0.0.1:1", "127.0.0.1.evil:1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST(Config, Units) {
  EXPECT_EQ(*ParseDurationNs("90s"), 90'000'000'000u);
  EXPECT_EQ(*ParseDurationNs("1w"), 7 * 86'400'000'000'000u);
  EXPECT_FALSE(ParseDurationNs("").ok());
  EXPECT_FALSE(ParseDurationNs("10").ok());
  EXPECT_FALSE(ParseDurationNs("-1s").ok());
  EXPECT_FALSE(ParseDurationNs("99999999999999y").ok());
  EXPECT_EQ(*ParseBytes("17"), 17u);
  EXPECT_EQ(*ParseBytes("4MiB"), 4u << 20);
  EXPECT_FALSE(ParseBytes("4 parsecs").ok());
}

}  // namespace
}  // namespace fleetblame::aggregator
