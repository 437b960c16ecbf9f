// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/aggregate.h"

#include <algorithm>

#include "common/saturating.h"

namespace fleetblame::aggregator {

void Sums::Merge(const Sums& other) {
  Grow(&ios, other.ios);
  Grow(&bytes, other.bytes);
  Grow(&read_bytes, other.read_bytes);
  Grow(&written_bytes, other.written_bytes);
  Grow(&wait_ns, other.wait_ns);
  Grow(&io_ns, other.io_ns);
  Grow(&errors, other.errors);
  Grow(&requeues, other.requeues);
  Grow(&estimated_ios, other.estimated_ios);
}

void Sums::Store(v1::Metrics* out) const {
  out->set_ios(ios);
  out->set_bytes(bytes);
  out->set_read_bytes(read_bytes);
  out->set_written_bytes(written_bytes);
  out->set_wait_ns(wait_ns);
  out->set_io_ns(io_ns);
  out->set_errors(errors);
  out->set_requeues(requeues);
  out->set_estimated_ios(estimated_ios);
}

uint64_t Sums::Value(v1::OrderBy order) const {
  switch (order) {
    case v1::ORDER_BY_IOS:
      return ios;
    case v1::ORDER_BY_WAIT_TIME:
      return wait_ns;
    case v1::ORDER_BY_IO_TIME:
      return io_ns;
    case v1::ORDER_BY_WRITTEN_BYTES:
      return written_bytes;
    case v1::ORDER_BY_READ_BYTES:
      return read_bytes;
    default:
      return bytes;
  }
}

// Some room on either side, so that a histogram settles after a few rows.
void DenseHistogram::Grow(size_t bucket) {
  constexpr size_t kRoom = 4;
  size_t low = bucket > kRoom ? bucket - kRoom : 0;
  size_t high = std::min<size_t>(bucket + kRoom + 1, kHistogramBuckets);
  if (counts_.empty()) {
    base_ = low;
    counts_.resize(high - low);
    return;
  }
  if (low < base_) {
    counts_.insert(counts_.begin(), base_ - low, 0);
    base_ = low;
  }
  if (high > base_ + counts_.size()) counts_.resize(high - base_);
}

void DenseHistogram::Merge(const DenseHistogram& other) {
  if (counts_.empty()) {
    *this = other;
    return;
  }
  for (size_t i = 0; i < other.counts_.size(); ++i) {
    if (other.counts_[i] == 0) continue;
    size_t bucket = other.base_ + i;
    if (bucket - base_ >= counts_.size()) Grow(bucket);
    counts_[bucket - base_] += other.counts_[i];
  }
}

void DenseHistogram::Store(v1::Histogram* out) const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    out->add_buckets(static_cast<uint32_t>(base_ + i));
    out->add_counts(counts_[i]);
  }
}

void Aggregate::Merge(const Aggregate& other) {
  sums.Merge(other.sums);
  wait.Merge(other.wait);
  io.Merge(other.io);
}

void Aggregate::Store(v1::Metrics* out) const {
  sums.Store(out);
  wait.Store(out->mutable_wait());
  io.Store(out->mutable_io());
}

}  // namespace fleetblame::aggregator
