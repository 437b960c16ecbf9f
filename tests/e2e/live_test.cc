// SPDX-License-Identifier: Apache-2.0
//
// The main job on the running kernel, through every part: a named writer dirties pages and is gone
// when another process makes them reach the disk; the command line must name the writer.
#include <gtest/gtest.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/e2e/fleet.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

std::string writer_program;

constexpr uint64_t kData = 32 << 20;

class LiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
    auto disk = LoopDisk::Create(DiskBytesFor(FilesystemKind::kExt4));
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    auto filesystem = ScratchFilesystem::Create(FilesystemKind::kExt4, disk_.get());
    ASSERT_TRUE(filesystem.ok()) << filesystem.status();
    filesystem_ = *std::move(filesystem);
    ASSERT_TRUE(filesystem_->Remount().ok());
    auto aggregator = fleet_.StartAggregator();
    ASSERT_TRUE(aggregator.ok()) << aggregator.status();
    aggregator_ = *std::move(aggregator);
    auto agent = fleet_.StartAgent("alpha", {"--devices", disk_->name(), "--window", "1s"});
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    ASSERT_TRUE(agent_->WaitForLog("agent is running", absl::Seconds(30))) << agent_->Log();
    ASSERT_TRUE(WaitForHost()) << agent_->Log();
  }

  // It runs before it has reached the aggregator.
  bool WaitForHost() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (fleet_.CliJson({"hosts"})["hosts"].empty()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return true;
  }

  void Write(const std::string& mode, const std::string& comm, const std::string& file,
             uint64_t bytes) {
    auto run =
        RunCommand({writer_program, "--mode", mode, "--comm", comm, "--path",
                    filesystem_->mount_point() + "/" + file, "--bytes", std::to_string(bytes)});
    ASSERT_TRUE(run.ok()) << run.status();
  }

  // Ends the agent, which delivers what it has.
  void StopAgent() {
    ASSERT_TRUE(disk_->WaitForRest(absl::Milliseconds(200)).ok());
    auto status = agent_->Stop(SIGTERM);
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(*status, 0) << agent_->Log();
  }

  Fleet fleet_;
  std::unique_ptr<LoopDisk> disk_;
  std::unique_ptr<ScratchFilesystem> filesystem_;
  std::unique_ptr<Daemon> aggregator_;
  std::unique_ptr<Daemon> agent_;
};

TEST_F(LiveTest, TheWriterGetsTheBlameThoughAnotherProcessSynced) {
  DiskCounters before = *disk_->Counters();
  Write("write", "fbw-writer", "report", kData);
  Write("syncfs", "fbw-syncer", "", 0);
  StopAgent();
  DiskCounters after = *disk_->Counters();

  nlohmann::json top = fleet_.CliJson({"top", "--by", "comm,file,confidence", "--op", "write"});
  uint64_t writer_data = 0;
  for (const auto& row : top["rows"]) {
    if (row["comm"] == "fbw-writer" && row["confidence"] == "exact" && row["file"].is_string() &&
        row["file"].get<std::string>().ends_with("/report")) {
      writer_data += row["bytes"].get<uint64_t>();
    }
    if (row["confidence"] == "exact") {
      EXPECT_NE(row["comm"], "fbw-syncer") << row.dump(2);
    }
  }
  EXPECT_GE(writer_data, kData * 99 / 100) << top.dump(2);
  EXPECT_LE(writer_data, kData);

  nlohmann::json issuer = fleet_.CliJson({"top", "--by", "comm", "--op", "write", "--issuer"});
  for (const auto& row : issuer["rows"]) EXPECT_NE(row["comm"], "fbw-writer") << issuer.dump(2);

  // The books: what is stored and what the kernel counted, byte for byte.
  nlohmann::json coverage = fleet_.CliJson({"coverage"});
  bool found = false;
  for (const auto& row : coverage["rows"]) {
    EXPECT_EQ(row["off_by_bytes"], 0) << row.dump(2);
    if (row["op"] != "write") continue;
    found = true;
    EXPECT_EQ(row["device"], disk_->name());
    EXPECT_EQ(row["kernel_bytes"].get<uint64_t>(), after.write_bytes - before.write_bytes);
  }
  EXPECT_TRUE(found) << coverage.dump(2);

  // The stack says how.
  nlohmann::json intents = fleet_.CliJson({"top", "--by", "intent", "--comm", "fbw-writer"});
  ASSERT_FALSE(intents["rows"].empty());
  std::string id = intents["rows"][0]["intent"];
  nlohmann::json intent = fleet_.CliJson({"intent", id});
  EXPECT_NE(intent["frames"].dump().find("sys_write"), std::string::npos)
      << intent["frames"].dump(2);
  EXPECT_FALSE(intent["unsymbolized"].get<bool>());
}

TEST_F(LiveTest, TraceShowsSingleIosAndEndsByItself) {
  // The trace runs while somebody writes.
  auto trace = Daemon::Start({ProgramPath("cli/fleetblame"), "--aggregator", fleet_.address(),
                              "trace", "--for", "5s", "--output", "json"},
                             fleet_.directory() + "/trace.json");
  ASSERT_TRUE(trace.ok());
  ASSERT_TRUE((*trace)->WaitForLog("tracing 1 host", absl::Seconds(10))) << (*trace)->Log();
  absl::SleepFor(absl::Milliseconds(500));
  Write("pwrite-direct", "fbw-direct", "direct", 1 << 20);
  auto status = (*trace)->WaitForExit();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 0) << (*trace)->Log();
  uint64_t bytes = 0;
  std::istringstream lines((*trace)->Log());
  for (std::string line; std::getline(lines, line);) {
    auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_discarded() || event["dirtier"]["comm"] != "fbw-direct" || event["op"] != "write")
      continue;
    bytes += event["bytes"].get<uint64_t>();
    EXPECT_EQ(event["device"], disk_->name());
    EXPECT_GT(event["io_ns"].get<uint64_t>(), 0u);
  }
  EXPECT_GE(bytes, uint64_t{1} << 20) << (*trace)->Log();
}

TEST_F(LiveTest, DirectivesChangeWhatIsWatched) {
  CliResult set = fleet_.Cli({"control", "set", "only-nothing", "--devices", "!*"});
  EXPECT_EQ(set.exit_code, 0) << set.err;
  absl::SleepFor(absl::Seconds(2));
  DiskCounters before = *disk_->Counters();
  Write("pwrite-direct", "fbw-unseen", "unseen", 1 << 20);
  ASSERT_GT(disk_->Counters()->write_bytes, before.write_bytes);
  CliResult clear = fleet_.Cli({"control", "clear", "only-nothing"});
  EXPECT_EQ(clear.exit_code, 0) << clear.err;
  absl::SleepFor(absl::Seconds(2));
  Write("pwrite-direct", "fbw-seen", "seen", 1 << 20);
  StopAgent();
  nlohmann::json top = fleet_.CliJson({"top", "--by", "comm"});
  std::string all = top.dump(2);
  EXPECT_EQ(all.find("fbw-unseen"), std::string::npos) << all;
  EXPECT_NE(all.find("fbw-seen"), std::string::npos) << all << agent_->Log();
}

}  // namespace

std::string* WriterProgram() { return &writer_program; }

}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, fleetblame::testing::WriterProgram());
}
