// SPDX-License-Identifier: Apache-2.0
//
// What must not work says so in one sentence with the way out, and with the documented exit code.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "node-agent/host/lock_file.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/synthetic_recording.h"

namespace fleetblame::testing {
namespace {

class RefusalTest : public ::testing::Test {
 protected:
  // Runs a program that must end by itself.
  std::pair<int, std::string> RunToEnd(std::vector<std::string> argv) {
    auto daemon = Daemon::Start(argv, fleet_.directory() + "/refused.log");
    if (!daemon.ok()) return {-1, daemon.status().ToString()};
    auto status = (*daemon)->WaitForExit();
    if (!status.ok()) return {-1, status.status().ToString()};
    return {WIFEXITED(*status) ? WEXITSTATUS(*status) : -1, (*daemon)->Log()};
  }
  std::pair<int, std::string> RunAgent(std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {ProgramPath("node-agent/fleetblame-agent"), "--state-dir",
                  fleet_.state_dir("alpha"), "--lock-file", fleet_.lock_file("alpha")});
    return RunToEnd(flags);
  }
  std::pair<int, std::string> RunAggregator(std::vector<std::string> flags) {
    flags.insert(flags.begin(), ProgramPath("aggregator/fleetblame-aggregator"));
    return RunToEnd(flags);
  }
  // Agent alpha, started while another one still holds the lock of its host.
  absl::StatusOr<std::unique_ptr<Daemon>> StartWaitingAgent() {
    auto lock = agent::LockFile::Take(fleet_.lock_file("alpha"), "this host");
    if (!lock.ok()) return lock.status();
    predecessor_ = *std::move(lock);
    auto daemon = fleet_.StartAgent("alpha", {"--tracer", "replay", "--replay-file", Recording()});
    if (daemon.ok() && !(*daemon)->WaitForLog("waiting for it to end", absl::Seconds(10))) {
      return absl::UnavailableError((*daemon)->Log());
    }
    return daemon;
  }
  std::string Recording() {
    std::string path = fleet_.directory() + "/recording";
    EXPECT_TRUE(WriteSyntheticRecording(path, 600, 100'000'000).ok());
    return path;
  }

  Fleet fleet_;
  std::unique_ptr<agent::LockFile> predecessor_;
};

TEST_F(RefusalTest, SecondAgentOnOneHost) {
  auto first = fleet_.StartAgent("alpha", {"--tracer", "replay", "--replay-file", Recording()});
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->WaitForLog("agent is running", absl::Seconds(10))) << (*first)->Log();
  auto [code, log] = RunAgent({"--aggregator", fleet_.address(), "--tracer", "replay",
                               "--replay-file", fleet_.directory() + "/recording"});
  EXPECT_EQ(code, 3) << log;
  EXPECT_NE(log.find("waiting for it to end"), std::string::npos) << log;
  EXPECT_NE(log.find("already runs on this host"), std::string::npos) << log;
  EXPECT_FALSE((*first)->HasEnded());
}

// As after a restart, when the predecessor still takes its programs out of the kernel.
TEST_F(RefusalTest, AnAgentWaitsForOneThatIsEnding) {
  auto agent = StartWaitingAgent();
  ASSERT_TRUE(agent.ok()) << agent.status();
  EXPECT_FALSE((*agent)->HasEnded());
  predecessor_.reset();
  EXPECT_TRUE((*agent)->WaitForLog("agent is running", absl::Seconds(15))) << (*agent)->Log();
}

TEST_F(RefusalTest, AnAgentThatWaitsCanBeStopped) {
  auto agent = StartWaitingAgent();
  ASSERT_TRUE(agent.ok()) << agent.status();
  const absl::Time began = absl::Now();
  auto status = (*agent)->Stop(SIGTERM);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status;
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
}

TEST_F(RefusalTest, SecondAggregatorOnOneStore) {
  auto first = fleet_.StartAggregator();
  ASSERT_TRUE(first.ok()) << first.status();
  auto [code, log] = RunAggregator(
      {"--listen", "127.0.0.1:0", "--metrics-address", "", "--data-dir", fleet_.data_dir()});
  EXPECT_NE(code, 0);
  EXPECT_NE(code, -1) << log;
  EXPECT_NE(log.find("another"), std::string::npos) << log;
  // The first one is none the worse for it.
  EXPECT_EQ(fleet_.Cli({"hosts"}).exit_code, 0);
}

TEST_F(RefusalTest, AgentWithWrongFlags) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--aggregator", "no port"},
           {"--aggregator", "localhost:1", "--window", "0s"},
           {"--aggregator", "localhost:1", "--label", "novalue"},
           {"--aggregator", "localhost:1", "--tracer", "dtrace"},
           {"--aggregator", "localhost:1", "--nosuchflag"},
           {"--aggregator", "localhost:1", "--tls-cert", "/x"},
           {"--aggregator", "localhost:99999"},
           {"--aggregator", "localhost:1", "--devices", "/dev/sda"},
           {"--aggregator", "localhost:1", "--hostname", "a\xff"},
           {"--aggregator", "localhost:1", "--metrics-address", "x:y"},
           {"--aggregator", "localhost:1", "--config", "/nonexistent"},
       }) {
    auto [code, log] = RunAgent(flags);
    EXPECT_EQ(code, 2) << absl::StrJoin(flags, " ") << "\n" << log;
    EXPECT_FALSE(log.empty());
  }
}

TEST_F(RefusalTest, AgentWithAFileThatIsNoRecording) {
  std::string path = fleet_.directory() + "/garbage";
  std::ofstream(path) << "this is no recording";
  auto [code, log] =
      RunAgent({"--aggregator", "localhost:1", "--tracer", "replay", "--replay-file", path});
  EXPECT_EQ(code, 4) << log;
  EXPECT_NE(log.find(path), std::string::npos) << log;
}

TEST_F(RefusalTest, AggregatorOpenToTheWorldWithoutTls) {
  auto [code, log] = RunAggregator({"--listen", "0.0.0.0:0", "--data-dir", fleet_.data_dir()});
  EXPECT_EQ(code, 2) << log;
  EXPECT_NE(log.find("--insecure"), std::string::npos) << log;
}

TEST_F(RefusalTest, AggregatorInADirectoryOfOthers) {
  std::ofstream(fleet_.directory() + "/somebody's") << "own";
  auto [code, log] = RunAggregator(
      {"--listen", "127.0.0.1:0", "--metrics-address", "", "--data-dir", fleet_.directory()});
  EXPECT_EQ(code, 3) << log;
  EXPECT_NE(log.find("holds other files"), std::string::npos) << log;
  EXPECT_FALSE(std::filesystem::exists(fleet_.directory() + "/CURRENT"));
}

TEST_F(RefusalTest, StoreOfANewerFormatAndFilesThatAreNoStore) {
  {
    auto first = fleet_.StartAggregator();
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE((*first)->Stop(SIGTERM).ok());
  }
  // A store that lost its table of contents.
  std::ofstream(fleet_.data_dir() + "/CURRENT") << "MANIFEST-999999\n";
  auto [code, log] = RunAggregator(
      {"--listen", "127.0.0.1:0", "--metrics-address", "", "--data-dir", fleet_.data_dir()});
  EXPECT_NE(code, 0);
  EXPECT_NE(code, -1) << "died by a signal\n" << log;
  EXPECT_NE(log.find(fleet_.data_dir()), std::string::npos) << log;
}

TEST_F(RefusalTest, QueriesThatMakeNoSense) {
  auto aggregator = fleet_.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  for (const Case& c : std::vector<Case>{
           {{"top", "--hosts", "{role=}"}, 2, "role"},
           {{"top", "--hosts", "{role=~\"(\"}"}, 2, "("},
           {{"search", "("}, 2, "("},
           {{"intent", "zz"}, 2, ""},
           {{"intent", "0123456789"}, 1, ""},
           {{"top", "--by", "colour"}, 2, "there are"},
           {{"top", "--since", "1h", "--until", "2h"}, 0, ""},
           {{"top", "--since", "2026-01-02", "--until", "2026-01-01"}, 2, "--since"},
           {{"top", "--limit", "0"}, 2, ""},
           {{"trace", "--hosts", "{host=\"nobody\"}", "--for", "1s"}, 1, ""},
           {{"frobnicate"}, 2, "'frobnicate' is no command; there are: top"},
           {{}, 2, "give a command: top"},
           {{"control", "frobnicate"},
            2,
            "'frobnicate' is no command; there are: set, clear, list"},
           {{"control"}, 2, "give a command: set, clear, list"},
           {{"top", "--nope"}, 2, "--nope"},
           {{"top", "-o", "xml"}, 2, "there are: table, json, csv"},
           {{"trace", "-o", "csv"}, 2, "there are: table, json"},
           {{"top", "--by", ""}, 2, "--by"},
           {{"top", "--until", "@9999999999"}, 2, "2262"},
           {{"search", "\xff"}, 2, "is not UTF-8"},
           {{"hosts", "--tls-server-name", "x"}, 2, "--tls-ca"},
           {{"control", "set", "a", "--devices", "/dev/sda"}, 2, "write sda"},
           {{"control", "set", "a", "--devices", "!!"}, 2, "two !"},
       }) {
    CliResult result = fleet_.Cli(c.arguments);
    EXPECT_EQ(result.exit_code, c.exit_code) << absl::StrJoin(c.arguments, " ") << "\n"
                                             << result.err;
    EXPECT_NE((result.err + result.out).find(c.says), std::string::npos) << result.err;
    if (c.exit_code != 0) {
      EXPECT_FALSE(result.err.empty()) << absl::StrJoin(c.arguments, " ");
    }
  }
  EXPECT_EQ(fleet_.Cli({"hosts"}).exit_code, 0);
}

TEST_F(RefusalTest, AddressesThatAreNone) {
  for (const char* address : {"localhost", "127.0.0.1:", ":1", "127.0.0.1:99999", "http://x:1"}) {
    auto [code, log] = RunToEnd({ProgramPath("cli/fleetblame"), "--aggregator", address, "hosts"});
    EXPECT_EQ(code, 2) << address << "\n" << log;
    EXPECT_NE(log.find("is not an address such as"), std::string::npos) << log;
  }
}

TEST_F(RefusalTest, AnAggregatorThatTakesConnectionsAndSaysNothing) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  auto [code, log] =
      RunToEnd({ProgramPath("cli/fleetblame"), "--aggregator",
                absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), "--timeout", "1s", "hosts"});
  ::close(listener);
  EXPECT_EQ(code, 3) << log;
  EXPECT_NE(log.find("no connection within 1s"), std::string::npos) << log;
  EXPECT_EQ(log.find("narrow the query"), std::string::npos) << log;
}

TEST_F(RefusalTest, TlsOnOneSideOnly) {
  auto aggregator = fleet_.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  std::string pem = fleet_.directory() + "/ca.pem";
  ASSERT_TRUE(
      RunCommand({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test",
                  "-days", "1", "-keyout", fleet_.directory() + "/ca.key", "-out", pem})
          .ok());
  CliResult result = fleet_.Cli({"hosts", "--tls-ca", pem, "--timeout", "5s"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find("TLS"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("\n"), result.err.size() - 1) << "more than a line: " << result.err;
  EXPECT_EQ(fleet_.Cli({"hosts", "--tls-ca", "/nonexistent"}).exit_code, 2);
  // What gRPC would take for an empty list of addresses.
  result = fleet_.Cli({"hosts", "--tls-ca", fleet_.directory() + "/ca.key"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("no certificate"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace fleetblame::testing
