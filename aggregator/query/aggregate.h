// SPDX-License-Identifier: Apache-2.0
//
// What rows add up to. Plain values; each belongs to one thread.
#ifndef AGGREGATOR_QUERY_AGGREGATE_H_
#define AGGREGATOR_QUERY_AGGREGATE_H_

#include <cstdint>
#include <vector>

#include "common/histogram.h"
#include "common/row_block.h"
#include "common/saturating.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

// The numbers of Metrics that are plain sums. Operations other than READ and WRITE count into
// `bytes` only.
struct Sums {
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
  uint64_t estimated_ios = 0;

  void Add(const BlockRow& row) {
    Grow(&ios, row.ios);
    Grow(&bytes, row.bytes);
    if (row.operation == v1::OPERATION_READ) Grow(&read_bytes, row.bytes);
    if (row.operation == v1::OPERATION_WRITE) Grow(&written_bytes, row.bytes);
    Grow(&wait_ns, row.wait_ns);
    Grow(&io_ns, row.io_ns);
    Grow(&errors, row.errors);
    Grow(&requeues, row.requeues);
    if (row.confidence == v1::CONFIDENCE_ESTIMATED) Grow(&estimated_ios, row.ios);
  }
  void Merge(const Sums& other);
  void Store(v1::Metrics* out) const;
  uint64_t Value(v1::OrderBy order) const;
};

// Counts in one array from the lowest to the highest bucket in use: adding to it costs a tenth of
// adding to a sparse histogram, and thousands of them still fit.
class DenseHistogram {
 public:
  void Add(const BucketSpan& span) {
    size_t bucket = 0;
    for (uint32_t i = 0; i < span.size; ++i) {
      bucket += span.deltas[i];
      // Below base_ this wraps to a large number.
      if (bucket - base_ >= counts_.size()) Grow(bucket);
      counts_[bucket - base_] += span.counts[i];
    }
  }
  void Merge(const DenseHistogram& other);
  void Store(v1::Histogram* out) const;

 private:
  void Grow(size_t bucket);

  size_t base_ = 0;
  std::vector<uint64_t> counts_;
};

// The histograms of one row, where they stand in its block.
struct RowHistograms {
  explicit RowHistograms(const RowBlockReader& reader)
      : wait(reader.wait_buckets()), io(reader.io_buckets()) {}
  BucketSpan wait;
  BucketSpan io;
};

struct Aggregate {
  Sums sums;
  DenseHistogram wait;
  DenseHistogram io;

  // Without histograms when those are null.
  void Add(const BlockRow& row, const RowHistograms* histograms) {
    sums.Add(row);
    if (histograms == nullptr) return;
    wait.Add(histograms->wait);
    io.Add(histograms->io);
  }
  void Merge(const Aggregate& other);
  void Store(v1::Metrics* out) const;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_AGGREGATE_H_
