// SPDX-License-Identifier: Apache-2.0
//
// What a spool must survive: files cut at any byte, any flipped bit, files that are gone. In every
// case each record that is whole is read, and nothing is invented.
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "node-agent/spool/testing/spool_fixture.h"

namespace fleetblame::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr uint64_t kWindows = 4;

class SpoolCorruptionTest : public SpoolFixture {
 protected:
  // A spool of one file with kWindows records; remembers its bytes and those of the state.
  void Make() {
    Open();
    for (uint64_t n = 1; n <= kWindows; ++n) Append(n);
    epoch_ = spool_->epoch();
    spool_.reset();
    ASSERT_EQ(SegmentFiles().size(), 1u);
    path_ = SegmentFiles()[0];
    bytes_ = Slurp(path_);
    state_ = Slurp(directory_ + "/state");
    // Where each record ends.
    size_t at = kSegmentHeaderBytes;
    while (at < bytes_.size()) {
      at +=
          kFrameHeaderBytes + DecodeFrameHeader(std::string_view(bytes_).substr(at))->payload_bytes;
      ends_.push_back(at);
    }
    ASSERT_EQ(ends_.size(), kWindows);
  }

  // Puts the spool back as Make left it, but for the contents of its file.
  void Restore(const std::string& bytes, bool with_state) {
    spool_.reset();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Overwrite(path_, bytes);
    if (with_state) Overwrite(directory_ + "/state", state_);
  }

  std::string path_;
  std::string bytes_;
  std::string state_;
  std::vector<size_t> ends_;
  uint64_t epoch_ = 0;
};

TEST_F(SpoolCorruptionTest, TornTailAtEveryByte) {
  Make();
  for (size_t length = kSegmentHeaderBytes; length <= bytes_.size(); ++length) {
    SCOPED_TRACE(length);
    // Without a state the agent died before it wrote one: nothing says that more was there.
    Restore(bytes_.substr(0, length), /*with_state=*/false);
    Open();
    EXPECT_EQ(spool_->epoch(), epoch_);
    uint64_t whole = 0;
    while (whole < kWindows && ends_[whole] <= length) ++whole;
    const auto all = ReadAll();
    ASSERT_EQ(all.size(), whole);
    for (uint64_t i = 0; i < whole; ++i) {
      EXPECT_EQ(all[i].first, i + 1);
      EXPECT_EQ(all[i].second, absl::StrCat("window-", i + 1));
    }
    const size_t kept = whole == 0 ? kSegmentHeaderBytes : ends_[whole - 1];
    EXPECT_EQ(spool_->stats().torn_bytes, length - kept);
    // The next record takes the number of the one that never was, and is read after a restart.
    Append(90);
    EXPECT_EQ(Read(whole + 1), "window-90");
    Open();
    EXPECT_EQ(Read(whole + 1), "window-90");
    if (whole > 0) {
      EXPECT_EQ(Read(whole), absl::StrCat("window-", whole));
    }
  }
}

TEST_F(SpoolCorruptionTest, RecordsThatTheStateKnowsBecomeAGap) {
  Make();
  Restore(bytes_.substr(0, ends_[1]), /*with_state=*/true);
  Open();
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"),
                                     Pair(3, "gap:corrupt_spool:2"), Pair(4, "")));
  Append(5);
  EXPECT_EQ(Read(5), "window-5");
  Open();
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(1, "window-1"), Pair(2, "window-2"), Pair(3, "gap:corrupt_spool:2"),
                          Pair(4, ""), Pair(5, "window-5")));
}

TEST_F(SpoolCorruptionTest, EveryBitFlipCostsAtMostItsRecord) {
  Make();
  for (size_t bit = 0; bit < 8 * bytes_.size(); bit += 3) {
    SCOPED_TRACE(bit);
    std::string damaged = bytes_;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    Restore(damaged, /*with_state=*/true);
    Open();
    EXPECT_EQ(spool_->epoch(), epoch_);
    uint64_t hit = 0;  // number of the record that was hit; 0 = the file's header
    if (bit / 8 >= kSegmentHeaderBytes) {
      hit = 1;
      while (ends_[hit - 1] <= bit / 8) ++hit;
    }
    for (uint64_t n = 1; n <= kWindows; ++n) {
      const std::string expected = n == hit ? "gap:corrupt_spool:1" : absl::StrCat("window-", n);
      EXPECT_EQ(Read(n), expected);
    }
    Append(5);
    EXPECT_EQ(Read(5), "window-5");
  }
}

TEST_F(SpoolCorruptionTest, AFlippedPayloadGivesAGapWithItsTimes) {
  Make();
  std::string damaged = bytes_;
  damaged[ends_[1] - 1] = static_cast<char>(damaged[ends_[1] - 1] ^ 1);  // end of record 2
  Restore(damaged, /*with_state=*/true);
  Open();
  auto batch = spool_->Read(2);
  ASSERT_TRUE(batch.ok());
  ASSERT_EQ(batch->gaps_size(), 1);
  EXPECT_EQ(batch->gaps(0).start_unix_ns(), 1'700'000'002'000'000'000u);
  EXPECT_EQ(batch->gaps(0).end_unix_ns(), 1'700'000'003'000'000'000u);
}

TEST_F(SpoolCorruptionTest, DamageWhileRunningIsNoticedAtTheRead) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Append(n);
  std::string damaged = Slurp(SegmentFiles()[0]);
  // In place, so that the open file sees it.
  {
    std::fstream file(SegmentFiles()[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(damaged.find("window-2")));
    file << "w1ndow-2";
  }
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(1, "window-1"), Pair(2, "gap:corrupt_spool:1"),
                                     Pair(3, "window-3")));
  EXPECT_EQ(spool_->stats().corrupt_records, 1u);
}

TEST_F(SpoolCorruptionTest, AFileOfGarbageIsSetAside) {
  Make();
  Restore(std::string(5000, 'x'), /*with_state=*/false);
  Open();
  EXPECT_TRUE(ReadAll().empty());
  EXPECT_TRUE(std::filesystem::exists(path_ + ".corrupt"));
  Append(1);
  EXPECT_EQ(ReadAll().size(), 1u);
}

TEST_F(SpoolCorruptionTest, AMissingFileInTheMiddleIsAGap) {
  options_.segment_bytes = 600;
  Open();
  for (uint64_t n = 1; n <= 12; ++n) Append(n, 100);
  spool_.reset();
  const auto files = SegmentFiles();
  ASSERT_GE(files.size(), 3u);
  std::filesystem::remove(files[1]);
  Open();
  uint64_t windows = 0;
  uint64_t gone = 0;
  for (const auto& [seq, text] : ReadAll()) {
    if (text == absl::StrCat("window-", seq)) ++windows;
    if (text.starts_with("gap:corrupt_spool:")) gone += std::stoul(text.substr(18));
  }
  EXPECT_GT(gone, 0u);
  EXPECT_EQ(windows + gone, 12u);
}

TEST_F(SpoolCorruptionTest, AnUnfinishedReplacementIsForgotten) {
  Make();
  Overwrite(directory_ + "/0000000000000001-0000000000000009.seg.tmp", bytes_.substr(0, 100));
  Open();
  EXPECT_EQ(ReadAll().size(), kWindows);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/0000000000000001-0000000000000009.seg.tmp"));
}

TEST_F(SpoolCorruptionTest, ACrashBeforeTheReplacedFileIsRemovedDoublesNothing) {
  Make();
  Open();
  ASSERT_TRUE(spool_->Split(2, {Window(21), Window(22)}).ok());
  const auto expected = ReadAll();
  spool_.reset();
  // As if the process had died between the rename of the new file and the removal of the old.
  Overwrite(path_, bytes_);
  Open();
  EXPECT_EQ(ReadAll(), expected);
}

TEST_F(SpoolCorruptionTest, ANewerFormatIsNotTouched) {
  Make();
  std::string newer = bytes_;
  newer[8] = 9;
  std::string head = newer.substr(0, kSegmentHeaderBytes - 4);
  const uint32_t crc = Checksum(head);
  for (int i = 0; i < 4; ++i) head.push_back(static_cast<char>(crc >> (8 * i)));
  newer.replace(0, kSegmentHeaderBytes, head);
  Restore(newer, /*with_state=*/true);
  const auto spool = Spool::Open(options_);
  EXPECT_EQ(spool.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(spool.status().message()), HasSubstr("format 9"));
  EXPECT_EQ(Slurp(path_), newer);
}

}  // namespace
}  // namespace fleetblame::agent
