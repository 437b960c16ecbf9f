// SPDX-License-Identifier: Apache-2.0
//
// Rows in columns: builds, checks and reads the RowBlock message of types.proto, which is both the
// payload of a batch on the wire and the value under a key in the store. Only here is it known how
// columns, tables and flattened histograms fit together.
//
// Threading: builder and reader belong to one thread; functions are pure.
#ifndef COMMON_ROW_BLOCK_H_
#define COMMON_ROW_BLOCK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/histogram.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame {

// One row with its table references resolved to dictionary numbers (0 = none). Whose dictionary
// they are from depends on where the block came from.
struct BlockRow {
  uint32_t dirtier_intent = 0;
  uint32_t issuer_intent = 0;
  uint32_t dirtier_actor = 0;
  uint32_t issuer_actor = 0;
  uint32_t device = 0;
  uint32_t file = 0;
  v1::Operation operation = v1::OPERATION_UNSPECIFIED;
  v1::Confidence confidence = v1::CONFIDENCE_UNSPECIFIED;
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
  SparseHistogram wait;
  SparseHistogram io;
};

// Collects rows and writes them out as one block. Rows are taken as they are: the caller sees to it
// that keys are unique.
class RowBlockBuilder {
 public:
  // Rows that stand together with their like compress better.
  enum class Order {
    kAsAdded,
    kByKey,  // device, operation and confidence, issuer, dirtier, file, each by first use
  };
  explicit RowBlockBuilder(Order order = Order::kAsAdded);
  ~RowBlockBuilder();

  void Add(const BlockRow& row);
  int rows() const;
  // Estimate of the serialized size; never less than 90 % of the truth.
  size_t approximate_bytes() const;
  // Returns the block and leaves the builder empty.
  v1::RowBlock Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// INVALID_ARGUMENT with a sentence when columns disagree in length, a reference points outside its
// table, an enum or bucket is out of range, a bucket list is not increasing, or there are more than
// `max_rows` rows. Whatever passes can be read by RowBlockReader without further checks.
absl::Status ValidateRowBlock(const v1::RowBlock& block, uint64_t max_rows);

// One row's histogram as it stands in a block: `size` buckets, each as its distance from the one
// before (the first from 0), and their counts. For those who add up many rows and do not want a
// SparseHistogram of each.
struct BucketSpan {
  const uint32_t* deltas = nullptr;
  const uint64_t* counts = nullptr;
  uint32_t size = 0;
};

// Walks a validated block, which must outlive the reader.
class RowBlockReader {
 public:
  explicit RowBlockReader(const v1::RowBlock& block);
  // Fills `*row` (all fields) and advances; false at the end. With `histograms` false those of
  // `*row` stay empty, which is several times faster.
  bool Next(BlockRow* row, bool histograms = true);

  // Histograms of the row that Next returned last, whatever its `histograms` was. Valid as long as
  // the block.
  BucketSpan wait_buckets() const;
  BucketSpan io_buckets() const;

 private:
  const v1::RowBlock& block_;
  int row_ = 0;
  // Where the buckets of the next row begin, and how many the last one had.
  int wait_at_ = 0;
  int io_at_ = 0;
  uint32_t wait_size_ = 0;
  uint32_t io_size_ = 0;
};

}  // namespace fleetblame

#endif  // COMMON_ROW_BLOCK_H_
