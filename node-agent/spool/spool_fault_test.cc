// SPDX-License-Identifier: Apache-2.0
//
// Disks that are full or fail: the agent goes on, everything is sent from memory, and what the disk
// holds is never damaged by the attempt.
#include "gmock/gmock.h"
#include "node-agent/spool/testing/spool_fixture.h"

namespace fleetblame::agent {
namespace {

using testing::ElementsAre;
using testing::Pair;

class SpoolFaultTest : public SpoolFixture {};

TEST_F(SpoolFaultTest, AFullDiskKeepsNewBatchesInMemory) {
  Open();
  Append(1);
  files_.room = 10;
  Append(2);
  Append(3);
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3")));
  EXPECT_GT(spool_->stats().write_errors, 0u);
  EXPECT_GT(spool_->stats().bytes_in_memory, 0u);

  files_.room = FaultyFiles::kNoLimit;
  Append(4);
  EXPECT_EQ(spool_->stats().bytes_in_memory, 0u);
  Open();
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3"),
                                     Pair(4, "window-4")));
}

TEST_F(SpoolFaultTest, AFullDiskAtEveryByteLeavesASpoolThatOpens) {
  for (uint64_t room = 0; room < 700; ++room) {
    SCOPED_TRACE(room);
    spool_.reset();
    std::filesystem::remove_all(directory_);
    files_.room = FaultyFiles::kNoLimit;
    Open();
    Append(1);
    files_.room = room;
    for (uint64_t n = 2; n <= 4; ++n) Append(n);
    for (uint64_t n = 1; n <= 4; ++n) EXPECT_EQ(Read(n), absl::StrCat("window-", n));
    // Whatever reached the disk is right; the rest is a known gap or never was.
    files_.room = FaultyFiles::kNoLimit;
    Open();
    const auto all = ReadAll();
    ASSERT_GE(all.size(), 1u);
    for (const auto& [seq, text] : all) {
      EXPECT_TRUE(text == absl::StrCat("window-", seq) || text.starts_with("gap:corrupt_spool") ||
                  text.empty())
          << seq << " " << text;
    }
    EXPECT_EQ(all[0].second, "window-1");
  }
}

TEST_F(SpoolFaultTest, AFailedWriteIsUndone) {
  Open();
  Append(1);
  files_.fail_append_in = 0;
  Append(2);
  EXPECT_EQ(Read(2), "window-2");
  Append(3);
  Open();
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3")));
  EXPECT_EQ(spool_->stats().torn_bytes, 0u);
}

TEST_F(SpoolFaultTest, AFailedWriteThatCannotBeUndoneEndsTheFile) {
  Open();
  Append(1);
  files_.fail_append_in = 0;
  files_.fail_truncate = true;
  Append(2);
  files_.fail_truncate = false;
  Append(3);
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3")));
  Open();
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3")));
}

TEST_F(SpoolFaultTest, AFailedSyncKeepsTheBatch) {
  options_.sync = true;
  Open();
  Append(1);
  files_.fail_sync = true;
  Append(2);
  EXPECT_EQ(Read(2), "window-2");
  EXPECT_GT(spool_->stats().write_errors, 0u);
  files_.fail_sync = false;
  Append(3);
  Open();
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3")));
}

TEST_F(SpoolFaultTest, MemoryIsBoundedAndItsLossIsAGap) {
  options_.memory_bytes = 3'000;
  Open();
  Append(1);
  files_.room = 0;
  for (uint64_t n = 2; n <= 40; ++n) Append(n, 300);
  EXPECT_LE(spool_->stats().bytes_in_memory, options_.memory_bytes);
  uint64_t windows = 0;
  uint64_t gone = 0;
  for (const auto& [seq, text] : ReadAll()) {
    if (text.starts_with("window-")) ++windows;
    if (text.starts_with("gap:spool_full:")) gone += std::stoul(text.substr(15));
  }
  EXPECT_EQ(windows + gone, 40u);
  EXPECT_GT(gone, 0u);
  EXPECT_EQ(Read(40), "window-40");
  const auto before = ReadAll();
  // Once the disk has room again, memory goes there, gap and all.
  files_.room = FaultyFiles::kNoLimit;
  Append(41);
  EXPECT_EQ(spool_->stats().bytes_in_memory, 0u);
  Open();
  auto after = ReadAll();
  ASSERT_EQ(after.size(), before.size() + 1);
  after.pop_back();
  EXPECT_EQ(after, before);
}

TEST_F(SpoolFaultTest, AcksFreeMemory) {
  Open();
  files_.room = 0;
  for (uint64_t n = 1; n <= 5; ++n) Append(n);
  spool_->MarkSent(5);
  spool_->Free(5);
  EXPECT_EQ(spool_->stats().bytes_in_memory, 0u);
  EXPECT_TRUE(ReadAll().empty());
  files_.room = FaultyFiles::kNoLimit;
  Append(6);
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(6, "window-6")));
}

TEST_F(SpoolFaultTest, NumbersSentFromMemoryAreNotGivenOutAgain) {
  Open();
  Append(1);
  spool_->MarkSent(1);
  files_.room = 0;
  Append(2);
  Append(3);
  spool_->MarkSent(3);
  // SIGKILL: memory is gone, and no state could be written either.
  spool_.reset();
  files_.room = FaultyFiles::kNoLimit;
  Open();
  Append(9);
  ASSERT_TRUE(spool_->Resume(3).ok());
  const auto all = ReadAll();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_GT(all[0].first, 3u);
  EXPECT_EQ(all[0].second, "window-9");
}

TEST_F(SpoolFaultTest, ASplitThatCannotBeWrittenChangesNothing) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Append(n);
  files_.fail_rename = true;
  EXPECT_FALSE(spool_->Split(2, {Window(21), Window(22)}).ok());
  files_.fail_rename = false;
  const auto expected = ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "window-3"));
  EXPECT_THAT(ReadAll(), expected);
  Open();
  EXPECT_THAT(ReadAll(), expected);
}

TEST_F(SpoolFaultTest, SettingAsideWorksOnAFullDisk) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Append(n);
  files_.room = 0;
  spool_->SetAside(2);
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "gap:rejected:1"), Pair(3, "window-3")));
}

TEST_F(SpoolFaultTest, ADirectoryThatCannotBeMadeIsOneSentence) {
  options_.directory = "/proc/fleetblame-spool";
  const auto spool = Spool::Open(options_);
  ASSERT_FALSE(spool.ok());
  EXPECT_NE(std::string(spool.status().message()).find("/proc/fleetblame-spool"),
            std::string::npos);
}

}  // namespace
}  // namespace fleetblame::agent
