// SPDX-License-Identifier: Apache-2.0
//
// No space left, first under the aggregator and then under the agent: clear words, no corruption,
// and everything goes on when there is room again.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/synthetic_recording.h"
#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {
namespace {

// A small tmpfs at `path`, filled to the brim on demand.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const char* size) : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, absl::StrCat("size=", size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

  void Fill() {
    std::ofstream file(path_ + "/filler", std::ios::binary);
    std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void MakeRoom() { std::filesystem::remove(path_ + "/filler"); }

 private:
  std::string path_;
  bool mounted_ = false;
};

class DiskFullTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to mount a small disk";
    absl::Status mounts = EnterPrivateMounts();
    ASSERT_TRUE(mounts.ok()) << mounts;
    ASSERT_TRUE(WriteSyntheticRecording(recording_, kWindows, 50'000'000).ok());
  }

  static constexpr int kWindows = 400;  // 20 s
  Fleet fleet_;
  std::string recording_ = fleet_.directory() + "/recording";
};

TEST_F(DiskFullTest, UnderTheAggregator) {
  // The store keeps 256 MiB free for itself.
  SmallDisk disk(fleet_.data_dir(), "512m");
  ASSERT_TRUE(disk.mounted());
  auto aggregator = fleet_.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  auto agent = fleet_.StartAgent("alpha", {"--tracer", "replay", "--replay-file", recording_});
  ASSERT_TRUE(agent.ok()) << agent.status();
  absl::SleepFor(absl::Seconds(3));
  disk.Fill();
  EXPECT_TRUE((*aggregator)->WaitForLog("free space", absl::Seconds(20))) << (*aggregator)->Log();
  // It still answers from what it has.
  uint64_t stored = fleet_.StoredBytes();
  EXPECT_GT(stored, 0u);
  EXPECT_EQ(stored % kBytesPerWindow, 0u);
  disk.MakeRoom();
  // Nothing was lost meanwhile: the agent's spool had it.
  EXPECT_EQ(fleet_.WaitForStoredBytes(kWindows * kBytesPerWindow, absl::Seconds(90)),
            kWindows * kBytesPerWindow)
      << (*aggregator)->Log() << (*agent)->Log();
  // And the store opens again.
  ASSERT_TRUE((*aggregator)->Stop(SIGKILL).ok());
  aggregator = fleet_.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  EXPECT_EQ(fleet_.StoredBytes(), kWindows * kBytesPerWindow);
}

TEST_F(DiskFullTest, UnderTheAgent) {
  SmallDisk disk(fleet_.state_dir("alpha"), "8m");
  ASSERT_TRUE(disk.mounted());
  auto aggregator = fleet_.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  auto agent = fleet_.StartAgent("alpha", {"--tracer", "replay", "--replay-file", recording_});
  ASSERT_TRUE(agent.ok()) << agent.status();
  absl::SleepFor(absl::Seconds(3));
  disk.Fill();
  EXPECT_TRUE((*agent)->WaitForLog("o space left", absl::Seconds(20))) << (*agent)->Log();
  absl::SleepFor(absl::Seconds(3));
  disk.MakeRoom();
  // It traces and delivers from memory all the while.
  EXPECT_EQ(fleet_.WaitForStoredBytes(kWindows * kBytesPerWindow, absl::Seconds(60)),
            kWindows * kBytesPerWindow)
      << (*agent)->Log();
  auto status = (*agent)->WaitForExit();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 0) << (*agent)->Log();
  // What the crippled spool still holds is known to be delivered: nothing comes twice.
  std::string empty = fleet_.directory() + "/empty";
  ASSERT_TRUE(WriteSyntheticRecording(empty, 0, 50'000'000).ok());
  agent = fleet_.StartAgent("alpha", {"--tracer", "replay", "--replay-file", empty});
  ASSERT_TRUE(agent.ok()) << agent.status();
  status = (*agent)->WaitForExit();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 0) << (*agent)->Log();
  EXPECT_EQ(fleet_.StoredBytes(), kWindows * kBytesPerWindow);
}

TEST_F(DiskFullTest, FromTheStart) {
  SmallDisk disk(fleet_.state_dir("alpha"), "1m");
  ASSERT_TRUE(disk.mounted());
  disk.Fill();
  auto aggregator = fleet_.StartAggregator();
  ASSERT_TRUE(aggregator.ok()) << aggregator.status();
  auto agent = fleet_.StartAgent("alpha", {"--tracer", "replay", "--replay-file", recording_});
  ASSERT_TRUE(agent.ok()) << agent.status();
  // Either refusal or work from memory is right; silence and a crash are not.
  EXPECT_TRUE((*agent)->WaitForLog("o space left", absl::Seconds(20))) << (*agent)->Log();
  if ((*agent)->HasEnded()) {
    auto status = (*agent)->WaitForExit();
    ASSERT_TRUE(status.ok());
    EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 5) << *status << (*agent)->Log();
  }
}

}  // namespace
}  // namespace fleetblame::testing
