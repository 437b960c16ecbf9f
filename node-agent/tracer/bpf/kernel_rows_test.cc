// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/kernel_rows.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

Row RowOf(FileId file, uint64_t bytes, ActorId actor = 1) {
  Row row;
  row.key.file = file;
  row.key.issuer_actor = actor;
  row.values.bytes = bytes;
  row.values.ios = 1;
  return row;
}

TEST(KernelRowsTest, IdsLoseTheirGenerationAndDevicesAreTakenApart) {
  fb_row_key key{};
  key.dirtier_actor = 5 + (3u << FB_ID_INDEX_BITS);
  key.issuer_actor = 7;
  key.dev = 8 << 20 | 17;
  key.top = 253 << 20 | 2;
  key.op = FB_OP_WRITE | 9 << FB_WEIGHT_SHIFT;
  key.confidence = FB_CONF_EXACT | 4 << FB_WEIGHT_SHIFT;
  key.reason = 2;
  fb_row values{};
  values.ios = 3;
  values.wait[0] = 2;
  values.io[FB_HIST_BUCKETS - 1] = 3;
  const Row row = MakeRow(key, values, /*reasons=*/3);
  EXPECT_EQ(row.key.dirtier_actor, 5u);
  EXPECT_EQ(row.key.issuer_actor, 7u);
  EXPECT_EQ(row.key.device, (DeviceNumber{8, 17}));
  EXPECT_EQ(row.key.top, (DeviceNumber{253, 2}));
  EXPECT_EQ(row.key.operation, Operation::kWrite);
  EXPECT_EQ(row.key.confidence, Confidence::kExact);
  EXPECT_EQ(row.key.reason, 2);
  EXPECT_EQ(row.values.wait.total(), 2u);
  EXPECT_EQ(row.values.io.total(), 3u);
  EXPECT_EQ(MakeRow(key, values, /*reasons=*/2).key.reason, 0);
}

TEST(KernelRowsTest, ASampleStandsForAPowerOfTwo) {
  fb_row_key key{};
  key.op = FB_OP_WRITE;
  key.confidence = FB_CONF_UNSEEN;
  EXPECT_EQ(IosPerSample(key), 0u);
  EXPECT_EQ(GroupsPerSample(key), 0u);
  key.op |= 10 << FB_WEIGHT_SHIFT;
  key.confidence |= 7 << FB_WEIGHT_SHIFT;
  EXPECT_EQ(IosPerSample(key), 1024u);
  EXPECT_EQ(GroupsPerSample(key), 128u);
  EXPECT_TRUE(IsUnseen(key));
}

TEST(KernelRowsTest, OnlyTheTopFilesKeepTheirRows) {
  // File 2 has most bytes, in two rows; then 3, then 1.
  std::vector<Row> rows = {RowOf(1, 10), RowOf(2, 15), RowOf(3, 20), RowOf(2, 15), RowOf(0, 99)};
  KeepTopFiles(2, &rows);
  std::vector<FileId> files;
  for (const Row& row : rows) files.push_back(row.key.file);
  EXPECT_EQ(files, (std::vector<FileId>{kNoFile, 2, 3, 2, kNoFile}));
  KeepTopFiles(0, &rows);
  for (const Row& row : rows) EXPECT_EQ(row.key.file, kNoFile);
}

TEST(KernelRowsTest, EachKeyOnceAndInOrder) {
  std::vector<Row> rows = MergeRows({RowOf(2, 1), RowOf(1, 2), RowOf(2, 4), RowOf(2, 8, 9)});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].key.file, 2u);
  EXPECT_EQ(rows[0].values.bytes, 5u);
  EXPECT_EQ(rows[0].values.ios, 2u);
  EXPECT_EQ(rows[1].values.bytes, 2u);
  EXPECT_EQ(rows[2].key.issuer_actor, 9u);
  AddRow(RowOf(1, 30), &rows);
  AddRow(RowOf(5, 50), &rows);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].values.bytes, 32u);
  EXPECT_EQ(rows[3].values.bytes, 50u);
}

TEST(KernelRowsTest, LostBytesOfADiskAndOperationAreOneRow) {
  std::vector<Row> rows;
  AddLost({8, 0}, Operation::kWrite, {.ios = 1, .bytes = 4096, .errors = 1}, &rows);
  AddLost({8, 0}, Operation::kWrite, {.ios = 2, .bytes = 512, .errors = 2}, &rows);
  AddLost({8, 0}, Operation::kRead, {.ios = 1, .bytes = 1}, &rows);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kLost);
  EXPECT_EQ(rows[0].values.ios, 3u);
  EXPECT_EQ(rows[0].values.bytes, 4608u);
  EXPECT_EQ(rows[0].values.errors, 3u);
}

TEST(KernelRowsTest, EveryOperationHasTheDirectionThatTheKernelCountsItIn) {
  EXPECT_EQ(DirectionOf(Operation::kRead), Operation::kRead);
  EXPECT_EQ(DirectionOf(Operation::kWrite), Operation::kWrite);
  EXPECT_EQ(DirectionOf(Operation::kWriteZeroes), Operation::kWrite);
  EXPECT_EQ(DirectionOf(Operation::kSecureErase), Operation::kWrite);
  EXPECT_EQ(DirectionOf(Operation::kDiscard), Operation::kDiscard);
  EXPECT_EQ(DirectionOf(Operation::kFlush), Operation::kUnspecified);
  EXPECT_EQ(DirectionOf(Operation::kOther), Operation::kUnspecified);
}

}  // namespace
}  // namespace fleetblame::agent
