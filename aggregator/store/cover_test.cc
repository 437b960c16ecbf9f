// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/cover.h"

#include <gtest/gtest.h>
#include <rocksdb/write_batch.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kHourNs = 3600 * kSecondNs;
constexpr uint64_t kDayNs = 24 * kHourNs;
constexpr uint64_t kStart = 1'790'035'200ull * kSecondNs;  // a midnight

class CoverTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.path = absl::StrCat(testing::TempDir(), "/cover_", getpid());
    std::filesystem::remove_all(options_.path);
    auto database = Database::Open(options_);
    ASSERT_TRUE(database.ok()) << database.status();
    database_ = *std::move(database);
    marks_ = std::make_unique<DirtyMarks>(database_.get());
  }
  void TearDown() override {
    marks_.reset();
    database_.reset();
    std::filesystem::remove_all(options_.path);
  }
  // Marks, as an append does, all buckets that hold this instant.
  void Mark(uint64_t instant) {
    rocksdb::WriteBatch batch;
    for (Level level : {Level::k1m, Level::k10m, Level::k1h, Level::k6h, Level::k1d}) {
      marks_->Mark({level, UnitKind::kHost, 1, instant / LevelNs(level) * LevelNs(level)}, 0,
                   &batch);
    }
  }
  std::vector<Segment> Run(uint64_t from, uint64_t to, Level coarsest = Level::k1d,
                           Level finest = Level::kRaw) {
    CoverRequest request{UnitKind::kHost, 1, from, to, coarsest, finest};
    return Cover(request, *marks_->Copy(), horizons_);
  }

  RocksStoreOptions options_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<DirtyMarks> marks_;
  Horizons horizons_{};
};

TEST_F(CoverTest, CleanRangeTakesTheCoarsestThatFits) {
  auto segments = Run(kStart, kStart + 2 * kDayNs);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].level, Level::k1d);
  segments = Run(kStart + kHourNs, kStart + kHourNs + 61 * kSecondNs);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].level, Level::k1m);
  EXPECT_EQ(segments[1].level, Level::kRaw);
}

TEST_F(CoverTest, StaleBucketsAreReplacedByFinerOnes) {
  Mark(kStart + 5 * kHourNs + 30 * kSecondNs);
  std::vector<Level> levels;
  for (const Segment& s : Run(kStart, kStart + kDayNs)) levels.push_back(s.level);
  EXPECT_EQ(levels,
            (std::vector<Level>{Level::k1h, Level::kRaw, Level::k1m, Level::k10m, Level::k6h}));
}

TEST_F(CoverTest, UnitWithoutFineBlocksHandsOver) {
  auto segments = Run(kStart + kSecondNs, kStart + kHourNs, Level::k1d, Level::k10m);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_TRUE(segments[0].finer);
  EXPECT_EQ(segments[0].to_unix_ns, kStart + 600 * kSecondNs);
  EXPECT_FALSE(segments[1].finer);
}

TEST_F(CoverTest, WhatIsGoneIsRoundedOutward) {
  horizons_ = {kStart + kDayNs, kStart + kDayNs, 0, 0, 0};
  auto segments = Run(kStart + kSecondNs, kStart + 2 * kSecondNs);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].level, Level::k10m);
  EXPECT_EQ(segments[0].from_unix_ns, kStart);
  EXPECT_EQ(segments[0].to_unix_ns, kStart + 600 * kSecondNs);
}

// Whatever is stale or gone: segments follow each other without hole or overlap, are whole buckets,
// are neither stale (unless nothing finer is left) nor gone, and reach beyond the range only where
// something is gone.
TEST_F(CoverTest, EveryInstantIsCoveredOnce) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    marks_ = std::make_unique<DirtyMarks>(database_.get());
    for (uint64_t i = random() % 8; i > 0; --i) Mark(kStart + random() % (4 * kDayNs));
    horizons_ = {};
    uint64_t horizon = kStart + 4 * kDayNs;
    for (int l = 0; l < kLevels - 1; ++l) {
      // Whole partitions of the level before may begin before the start.
      if (random() % 2 && horizon >= kStart) horizon = kStart + random() % (horizon - kStart + 1);
      uint64_t part = PartitionNs(static_cast<Level>(l));
      horizons_[static_cast<size_t>(l)] = horizon = horizon / part * part;
    }
    uint64_t from = kStart + random() % (4 * kDayNs);
    uint64_t to = from + 1 + random() % (2 * kDayNs);
    auto segments = Run(from, to);
    ASSERT_FALSE(segments.empty());
    auto dirty = marks_->Copy();
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& s = segments[i];
      ASSERT_LT(s.from_unix_ns, s.to_unix_ns);
      if (i > 0) {
        ASSERT_EQ(s.from_unix_ns, segments[i - 1].to_unix_ns);
      }
      if (s.level == Level::kRaw) {
        EXPECT_GE(s.from_unix_ns, horizons_[0]);
        continue;
      }
      uint64_t length = LevelNs(s.level);
      EXPECT_EQ(s.from_unix_ns % length, 0u);
      EXPECT_EQ(s.to_unix_ns % length, 0u);
      uint64_t below = horizons_[static_cast<size_t>(s.level) - 1];
      for (uint64_t stale :
           dirty->Stale(s.level, UnitKind::kHost, 1, s.from_unix_ns, s.to_unix_ns)) {
        EXPECT_LT(stale, below);
      }
    }
    EXPECT_LE(segments.front().from_unix_ns, from);
    EXPECT_GE(segments.back().to_unix_ns, to);
    if (from >= horizons_[0]) {
      EXPECT_EQ(segments.front().from_unix_ns, from);
    }
    if (to >= horizons_[0]) {
      EXPECT_EQ(segments.back().to_unix_ns, to);
    }
  }
}

}  // namespace
}  // namespace fleetblame::aggregator
