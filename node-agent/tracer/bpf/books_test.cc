// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/books.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

constexpr DeviceNumber kDisk{8, 0};

Row RowOf(Operation operation, uint64_t bytes, Confidence confidence = Confidence::kExact) {
  Row row;
  row.key.device = kDisk;
  row.key.operation = operation;
  row.key.confidence = confidence;
  row.values.bytes = bytes;
  row.values.ios = 1;
  return row;
}

const Books& Of(const std::vector<Books>& books, Operation direction) {
  for (const Books& entry : books) {
    if (entry.device == kDisk && entry.direction == direction) return entry;
  }
  static const Books kNone;
  ADD_FAILURE() << "no books of direction " << static_cast<int>(direction);
  return kNone;
}

TEST(BooksTest, RowsAreEnteredInTheDirectionThatTheKernelCountsThemIn) {
  WatchedDisk disk;
  disk.seen = {.write_ios = 10, .write_bytes = 1000};
  const std::vector<Row> rows = {RowOf(Operation::kWrite, 100), RowOf(Operation::kWriteZeroes, 50),
                                 RowOf(Operation::kWrite, 7, Confidence::kLost),
                                 RowOf(Operation::kDiscard, 30), RowOf(Operation::kFlush, 0)};
  BooksByDirection books;
  const DiskStat now{.write_ios = 13, .write_bytes = 1157, .discard_ios = 1, .discard_bytes = 30};
  EXPECT_FALSE(EnterKernelCounts(kDisk, now, BytesOf(rows), &disk, &books));
  EXPECT_EQ(disk.Deficit(), 0);
  EXPECT_EQ(disk.seen, now);
  const std::vector<Books> closed = CloseBooks(rows, std::move(books));
  ASSERT_EQ(closed.size(), 3u);
  const Books& writes = Of(closed, Operation::kWrite);
  EXPECT_EQ(writes.kernel_bytes, 157u);
  EXPECT_EQ(writes.kernel_ios, 3u);
  EXPECT_EQ(writes.recorded_bytes, 150u);
  EXPECT_EQ(writes.recorded_ios, 3u);
  EXPECT_EQ(writes.lost_bytes, 7u);
  EXPECT_EQ(Of(closed, Operation::kDiscard).recorded_bytes, 30u);
  EXPECT_EQ(Of(closed, Operation::kRead).kernel_bytes, 0u);
}

TEST(BooksTest, WhatTheKernelCountedMoreIsCarriedOnByDirection) {
  WatchedDisk disk;
  BooksByDirection books;
  // An IO that ended between the two countings: first the kernel has it, then we.
  EnterKernelCounts(kDisk, {.read_bytes = 4096, .write_bytes = 512}, {}, &disk, &books);
  EXPECT_EQ(disk.DeficitOf(Operation::kRead), 4096);
  EXPECT_EQ(disk.DeficitOf(Operation::kWrite), 512);
  EXPECT_EQ(disk.Deficit(), 4608);
  const bool rested = EnterKernelCounts(kDisk, {.read_bytes = 4096, .write_bytes = 512},
                                        BytesOf({RowOf(Operation::kRead, 4096)}), &disk, &books);
  EXPECT_TRUE(rested);
  EXPECT_EQ(disk.DeficitOf(Operation::kRead), 0);
  EXPECT_EQ(disk.Deficit(), 512);
}

// A disk that went away before its counters were read still has what was recorded of it.
TEST(BooksTest, RowsOfADiskWithoutKernelCountsAreEntered) {
  const std::vector<Books> closed = CloseBooks({RowOf(Operation::kRead, 5)}, {});
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].device, kDisk);
  EXPECT_EQ(closed[0].recorded_bytes, 5u);
  EXPECT_EQ(closed[0].kernel_bytes, 0u);
}

}  // namespace
}  // namespace fleetblame::agent
