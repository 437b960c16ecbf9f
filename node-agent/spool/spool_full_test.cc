// SPDX-License-Identifier: Apache-2.0
//
// The order in which a full spool gives way: precision first, then the oldest, and never anything
// that is not written down as a gap.
#include <set>

#include "gmock/gmock.h"
#include "node-agent/spool/testing/spool_fixture.h"

namespace fleetblame::agent {
namespace {

// Merges pairs of windows by putting their marks together; padding is what makes room.
std::vector<v1::Batch> MergePairs(std::vector<v1::Batch> batches) {
  std::vector<v1::Batch> result;
  for (size_t i = 0; i < batches.size(); i += 2) {
    v1::Batch merged = batches[i];
    if (i + 1 < batches.size()) {
      merged.mutable_losses()->MergeFrom(batches[i + 1].losses());
      merged.mutable_gaps()->MergeFrom(batches[i + 1].gaps());
      merged.mutable_window()->set_end_boot_ns(batches[i + 1].window().end_boot_ns());
      merged.mutable_window()->set_coarsened(true);
    }
    for (auto& loss : *merged.mutable_losses()) {
      std::string name = loss.name();
      name.erase(name.find_last_not_of('.') + 1);
      loss.set_name(name);
    }
    result.push_back(std::move(merged));
  }
  return result;
}

class SpoolFullTest : public SpoolFixture {
 protected:
  SpoolFullTest() {
    options_.max_bytes = 20'000;
    options_.segment_bytes = 2'000;
  }

  // Checks that each of the first `count` windows is in the spool once or within a gap, and that
  // nothing is there twice. Returns how many are within gaps.
  uint64_t CheckComplete(uint64_t count) {
    std::set<std::string> seen;
    uint64_t gone = 0;
    for (const auto& [seq, text] : ReadAll()) {
      std::istringstream parts(text);
      for (std::string part; parts >> part;) {
        if (part.starts_with("gap:spool_full:")) {
          gone += std::stoul(part.substr(15));
        } else {
          EXPECT_TRUE(seen.insert(part).second) << part << " is there twice";
        }
      }
    }
    uint64_t missing = 0;
    for (uint64_t n = 1; n <= count; ++n) {
      if (!seen.contains(absl::StrCat("window-", n))) ++missing;
    }
    // A gap counts batches; a merged one held several windows.
    EXPECT_GE(missing, gone);
    EXPECT_EQ(missing > 0, gone > 0);
    return missing;
  }
};

TEST_F(SpoolFullTest, MergesBeforeItDrops) {
  options_.coarsen = MergePairs;
  Open();
  for (uint64_t n = 1; n <= 100; ++n) Append(n, 200);
  EXPECT_LE(spool_->stats().bytes_on_disk, options_.max_bytes);
  EXPECT_GT(spool_->stats().coarsened_batches, 0u);
  EXPECT_EQ(spool_->stats().dropped_batches, 0u);
  EXPECT_EQ(CheckComplete(100), 0u);
  const auto before = ReadAll();
  EXPECT_EQ(before.front().first, 1u);
  EXPECT_EQ(before.back().first, 100u);
  Open();
  EXPECT_EQ(ReadAll(), before);
}

TEST_F(SpoolFullTest, DropsTheOldestAndSaysSo) {
  Open();
  for (uint64_t n = 1; n <= 200; ++n) Append(n, 200);
  EXPECT_LE(spool_->stats().bytes_on_disk, options_.max_bytes);
  EXPECT_GT(spool_->stats().dropped_batches, 0u);
  EXPECT_EQ(CheckComplete(200), spool_->stats().dropped_batches);
  const auto all = ReadAll();
  // One gap at the beginning, then empty batches, then windows without a hole.
  EXPECT_TRUE(all.front().second.starts_with("gap:spool_full:")) << all.front().second;
  EXPECT_EQ(all.back().second, "window-200");
  auto gap = spool_->Read(all.front().first);
  ASSERT_TRUE(gap.ok());
  EXPECT_EQ(gap->gaps(0).start_unix_ns(), 1'700'000'001'000'000'000u);
  Open();
  EXPECT_EQ(ReadAll(), all);
}

TEST_F(SpoolFullTest, WhatMayHaveLeftTheHostIsNeverMerged) {
  options_.coarsen = MergePairs;
  Open();
  for (uint64_t n = 1; n <= 20; ++n) Append(n, 200);
  spool_->MarkSent(20);
  for (uint64_t n = 21; n <= 100; ++n) Append(n, 200);
  std::set<std::string> first20;
  for (const auto& [seq, text] : ReadAll()) {
    if (seq > 20 || text.starts_with("gap:") || text.empty()) continue;
    EXPECT_EQ(text, absl::StrCat("window-", seq));
  }
}

TEST_F(SpoolFullTest, AfterARestartOnlyWhatWasNotSentIsMerged) {
  options_.coarsen = MergePairs;
  Open();
  for (uint64_t n = 1; n <= 40; ++n) Append(n, 200);
  spool_->MarkSent(10);
  Open();
  for (uint64_t n = 41; n <= 90; ++n) Append(n, 200);
  EXPECT_GT(spool_->stats().coarsened_batches, 0u);
  for (const auto& [seq, text] : ReadAll()) {
    if (seq <= 10 && !text.starts_with("gap:") && !text.empty()) {
      EXPECT_EQ(text, absl::StrCat("window-", seq));
    }
  }
}

TEST_F(SpoolFullTest, InAnotherBootNothingIsMergedForTheStateMayBeOld) {
  options_.coarsen = MergePairs;
  Open();
  for (uint64_t n = 1; n <= 40; ++n) Append(n, 200);
  options_.boot_id = "boot-2";
  Open();
  EXPECT_EQ(spool_->sent_seq(), 40u);
}

TEST_F(SpoolFullTest, StaysBoundedForever) {
  options_.coarsen = MergePairs;
  Open();
  for (uint64_t n = 1; n <= 3000; ++n) Append(n, 150);
  EXPECT_LE(spool_->stats().bytes_on_disk, options_.max_bytes);
  EXPECT_LE(SegmentFiles().size(), 40u);
  const auto all = ReadAll();
  EXPECT_EQ(all.back().first, 3000u);
  EXPECT_EQ(all.back().second, "window-3000");
}

TEST_F(SpoolFullTest, AWindowLargerThanTheSpoolStaysInMemory) {
  options_.memory_bytes = 100'000;
  Open();
  Append(1);
  Append(2, 50'000);
  Append(3);
  EXPECT_EQ(Read(2), "window-2");
  EXPECT_EQ(Read(3), "window-3");
  EXPECT_GT(spool_->stats().write_errors, 0u);
}

}  // namespace
}  // namespace fleetblame::agent
