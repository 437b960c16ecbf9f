// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/unseen_pages.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace fleetblame::agent {
namespace {

using Losses = std::map<std::string, uint64_t>;

constexpr DeviceNumber kDisk{8, 0};

Row Make(FileId file, ActorId dirtier, uint64_t ios, uint64_t bytes, DeviceNumber device = kDisk) {
  Row row;
  row.key.device = device;
  row.key.operation = Operation::kWrite;
  row.key.confidence = Confidence::kExact;
  row.key.file = file;
  row.key.dirtier_actor = dirtier;
  row.key.dirtier_stack = dirtier + 100;
  row.key.issuer_actor = 77;
  row.values.ios = ios;
  row.values.bytes = bytes;
  row.values.wait_ns = 10 * ios + 3;
  row.values.io_ns = 100 * ios + 7;
  if (ios != 0) {
    row.values.wait.Add(1, ios);
    row.values.io.Add(20, ios / 2);
    row.values.io.Add(30, ios - ios / 2);
  }
  return row;
}

TEST(UnseenPages, GoByThoseOfTheSameFileThatWereLookedAt) {
  UnseenPages pages;
  pages.AddSample(Make(5, 1, 1, 3000), 8);
  pages.AddSample(Make(5, 2, 1, 1000), 8);
  pages.AddSample(Make(6, 3, 1, 9000), 8);
  pages.AddSample(Make(5, 4, 1, 9000, {8, 16}), 8);
  pages.AddUnseen(Make(5, 2, 100, 40000), 8);
  Losses losses;
  const std::vector<Row> rows = pages.Take(&losses);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key.dirtier_actor, 1u);
  EXPECT_EQ(rows[0].key.dirtier_stack, 101u);
  EXPECT_EQ(rows[0].key.issuer_actor, 77u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kEstimated);
  EXPECT_EQ(rows[0].values.bytes, 30000u);
  EXPECT_EQ(rows[0].values.ios, 75u);
  EXPECT_EQ(rows[1].key.dirtier_actor, 2u);
  EXPECT_EQ(rows[1].values.bytes, 10000u);
  EXPECT_EQ(losses["ios_estimated"], 100u);
  EXPECT_EQ(losses["ios_estimated_variance"], 800u);
  EXPECT_TRUE(pages.Take(&losses).empty());
}

// Half of the groups were looked at, and later one in 16: what was seen then stands for more.
TEST(UnseenPages, SamplesOfDifferentLevels) {
  UnseenPages pages;
  pages.AddSample(Make(5, 1, 1, 1000), 2);
  pages.AddSample(Make(5, 2, 1, 1000), 16);
  pages.AddUnseen(Make(5, 0, 16, 16000), 16);
  Losses losses;
  const std::vector<Row> rows = pages.Take(&losses);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].values.bytes, 1000u);
  EXPECT_EQ(rows[1].values.bytes, 15000u);
}

TEST(UnseenPages, WithoutAnySampleTheyGoToTheLastDirtier) {
  UnseenPages pages;
  pages.AddSample(Make(6, 3, 1, 9000), 8);
  pages.AddSample(Make(5, 3, 1, 9000), 1);  // of a group that stands for no other
  pages.AddUnseen(Make(5, 9, 10, 40000), 8);
  pages.AddUnseen(Make(5, kNoActor, 10, 50000), 8);
  Losses losses;
  const std::vector<Row> rows = pages.Take(&losses);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kInode);
  EXPECT_EQ(rows[0].key.dirtier_actor, 9u);
  EXPECT_EQ(rows[0].values.bytes, 40000u);
  EXPECT_EQ(rows[1].key.confidence, Confidence::kLost);
  EXPECT_EQ(rows[1].values.bytes, 50000u);
  EXPECT_TRUE(losses.empty());
}

// IOs that were not looked at: their file is an estimate already, and so is all that follows.
TEST(UnseenPages, OfSkippedIosNothingIsMoreThanAnEstimate) {
  UnseenPages pages;
  pages.AddSample(Make(5, 3, 1, 4096), 8);
  auto charged = [](FileId file, ActorId last) {
    return Sample{.row = Make(file, last, 10, 40960), .stands_for = 16, .groups_per_sample = 8};
  };
  pages.AddSkipped(charged(5, 9));
  pages.AddSkipped(charged(6, 9));
  pages.AddSkipped(charged(7, kNoActor));
  Losses losses;
  const std::vector<Row> rows = pages.Take(&losses);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].key.dirtier_actor, 3u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kEstimated);
  EXPECT_EQ(rows[1].key.dirtier_actor, 9u);
  EXPECT_EQ(rows[1].key.confidence, Confidence::kEstimated);
  EXPECT_EQ(rows[2].key.confidence, Confidence::kLost);
  EXPECT_EQ(losses["ios_estimated"], 20u);
  EXPECT_EQ(losses["ios_estimated_variance"], 10u * (16 + 8) + 10u * 16);
}

// Files beyond those that have a number have nothing in common.
TEST(UnseenPages, FilesWithoutANumberAreNotOneFile) {
  UnseenPages pages;
  pages.AddSample(Make(kNoFile, 3, 1, 9000), 8);
  pages.AddUnseen(Make(kNoFile, 9, 10, 40000), 8);
  Losses losses;
  const std::vector<Row> rows = pages.Take(&losses);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key.dirtier_actor, 9u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kInode);
}

// Whatever comes, nothing is added and nothing is left out.
TEST(UnseenPages, AddUpToWhatWasGiven) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    UnseenPages pages;
    for (int i = 0; i < 20; ++i)
      pages.AddSample(Make(random() % 4, 1 + random() % 5, 1, random() % 1'000'000),
                      uint64_t{1} << random() % 9);
    RowValues given, taken;
    uint64_t histogram = 0;
    Losses losses;
    for (int i = 0; i < 10; ++i) {
      Row row = Make(random() % 4, random() % 3, random() % 1000, random() % (uint64_t{1} << 40));
      row.values.errors = random() % 3;
      row.values.requeues = random() % 3;
      for (auto value :
           {&RowValues::ios, &RowValues::bytes, &RowValues::errors, &RowValues::requeues}) {
        given.*value += row.values.*value;
      }
      if (row.values.ios == 0) row.values.wait_ns = row.values.io_ns = 0;
      given.wait_ns += row.values.wait_ns;
      given.io_ns += row.values.io_ns;
      pages.AddUnseen(row, 8);
    }
    for (const Row& row : pages.Take(&losses)) {
      for (auto value : {&RowValues::ios, &RowValues::bytes, &RowValues::errors,
                         &RowValues::requeues, &RowValues::wait_ns, &RowValues::io_ns}) {
        taken.*value += row.values.*value;
      }
      EXPECT_EQ(row.values.wait.total(), row.values.ios);
      EXPECT_EQ(row.values.io.total(), row.values.ios);
      histogram += row.values.wait.total();
    }
    for (auto value : {&RowValues::ios, &RowValues::bytes, &RowValues::errors, &RowValues::requeues,
                       &RowValues::wait_ns, &RowValues::io_ns}) {
      EXPECT_EQ(given.*value, taken.*value);
    }
    EXPECT_EQ(histogram, given.ios);
  }
}

}  // namespace
}  // namespace fleetblame::agent
