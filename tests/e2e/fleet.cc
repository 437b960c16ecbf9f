// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/fleet.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/testing/free_port.h"

namespace fleetblame::testing {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);

std::string MakeDirectory() {
  const char* base = std::getenv("TEST_TMPDIR");
  std::string pattern = absl::StrCat(base != nullptr ? base : "/tmp", "/fleet-XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) {
    ADD_FAILURE() << "mkdtemp " << pattern << ": " << strerror(errno);
  }
  return pattern;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string ProgramPath(const std::string& runfile) {
  const char* root = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  if (root != nullptr && workspace != nullptr) {
    return absl::StrCat(root, "/", workspace, "/", runfile);
  }
  return std::filesystem::absolute(runfile).string();
}

Fleet::Fleet() : directory_(MakeDirectory()), port_(FreePort()) {}

Fleet::~Fleet() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::StatusOr<std::unique_ptr<Daemon>> Fleet::StartAggregator(std::vector<std::string> flags) {
  std::vector<std::string> argv = {ProgramPath("aggregator/fleetblame-aggregator"),
                                   "--listen",
                                   address(),
                                   "--data-dir",
                                   data_dir(),
                                   "--metrics-address",
                                   ""};
  argv.insert(argv.end(), flags.begin(), flags.end());
  auto daemon = Daemon::Start(argv, directory_ + "/aggregator.log");
  if (!daemon.ok()) return daemon.status();
  absl::Time deadline = absl::Now() + kStartTimeout;
  while (absl::Now() < deadline) {
    if (Cli({"hosts", "--timeout", "2s"}).exit_code == 0) return daemon;
    if ((*daemon)->HasEnded()) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::UnavailableError(absl::StrCat("the aggregator does not serve:\n", (*daemon)->Log()));
}

absl::StatusOr<std::unique_ptr<Daemon>> Fleet::StartAgent(const std::string& host,
                                                          std::vector<std::string> flags) {
  std::filesystem::create_directories(state_dir(host));
  std::vector<std::string> argv = {ProgramPath("node-agent/fleetblame-agent"),
                                   "--aggregator",
                                   address(),
                                   "--state-dir",
                                   state_dir(host),
                                   "--lock-file",
                                   lock_file(host),
                                   "--host-id",
                                   host,
                                   "--hostname",
                                   host};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return Daemon::Start(argv, absl::StrCat(directory_, "/agent-", host, ".log"));
}

CliResult Fleet::Cli(std::vector<std::string> arguments) const {
  CliResult result;
  std::string err_path = absl::StrCat(directory_, "/cli-stderr");
  std::vector<std::string> argv = {"sh",
                                   "-c",
                                   "err=$0; exec \"$@\" 2>\"$err\"",
                                   err_path,
                                   ProgramPath("cli/fleetblame"),
                                   "--aggregator",
                                   address()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  auto child = ChildProcess::Start(argv, ChildProcess::Output::kCapture);
  if (!child.ok()) {
    ADD_FAILURE() << child.status();
    return result;
  }
  auto ended = (*child)->Wait();
  if (!ended.ok()) {
    ADD_FAILURE() << ended.status();
    return result;
  }
  result.exit_code = WIFEXITED(ended->exit_status) ? WEXITSTATUS(ended->exit_status) : -1;
  result.out = ended->output;
  result.err = ReadFile(err_path);
  return result;
}

nlohmann::json Fleet::CliJson(std::vector<std::string> arguments) const {
  arguments.insert(arguments.end(), {"--output", "json"});
  CliResult result = Cli(arguments);
  EXPECT_EQ(result.exit_code, 0) << absl::StrJoin(arguments, " ") << "\n" << result.err;
  auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << result.out;
  return json.is_discarded() ? nlohmann::json() : json;
}

uint64_t Fleet::StoredBytes(const std::string& host) const {
  std::vector<std::string> arguments = {"top", "--by", "op", "--since", "30d"};
  if (!host.empty())
    arguments.insert(arguments.end(), {"--hosts", absl::StrCat("{host=\"", host, "\"}")});
  nlohmann::json answer = CliJson(arguments);
  uint64_t bytes = 0;
  if (!answer.contains("rows")) return 0;
  for (const auto& row : answer["rows"]) bytes += row["bytes"].get<uint64_t>();
  return bytes;
}

uint64_t Fleet::WaitForStoredBytes(uint64_t bytes, absl::Duration timeout) const {
  absl::Time deadline = absl::Now() + timeout;
  uint64_t seen = StoredBytes();
  while (seen != bytes && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(100));
    seen = StoredBytes();
  }
  return seen;
}

}  // namespace fleetblame::testing
