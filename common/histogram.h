// SPDX-License-Identifier: Apache-2.0
//
// Log-linear histogram of durations in nanoseconds: eight buckets to each power of two, so that
// the middle of a bucket is never more than 6.25 % away from any value that fell into it.
//
// The layout is part of the wire format and of the stored format; bpf/fleetblame_abi.h repeats
// the constants in C for the kernel side and node-agent/tracer checks that they agree:
//   bucket 0            [0, 2^10) ns: "under a microsecond"
//   bucket 1 + 8*k + s  2^(10+k) * [1 + s/8, 1 + (s+1)/8), for k in [0, 24), s in [0, 8)
//   bucket 193          2^34 ns (17 s) and more
//
// Plain values and functions; safe from any thread as values are.
#ifndef COMMON_HISTOGRAM_H_
#define COMMON_HISTOGRAM_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace fleetblame {

inline constexpr int kHistogramFirstOctave = 10;
inline constexpr int kHistogramOctaves = 24;
inline constexpr int kHistogramSubBuckets = 8;
inline constexpr int kHistogramBuckets = 2 + kHistogramOctaves * kHistogramSubBuckets;

// Bucket that `value_ns` falls into.
int HistogramBucket(uint64_t value_ns);

// Bounds of a bucket, [lower, upper). The upper bound of the last one is UINT64_MAX.
uint64_t HistogramLowerNs(int bucket);
uint64_t HistogramUpperNs(int bucket);

// Sparse histogram: (bucket, count) with increasing buckets and no zero counts.
class SparseHistogram {
 public:
  using Entry = std::pair<uint16_t, uint64_t>;

  // Adds `count` to a bucket. Appending at the end is O(1). `bucket` must be in range.
  void Add(int bucket, uint64_t count);
  void Merge(const SparseHistogram& other);

  uint64_t total() const;
  bool empty() const { return entries_.empty(); }
  const std::vector<Entry>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

  // The q-quantile (0 <= q <= 1) as the middle of the bucket that holds it; 0 when empty. For the
  // last, open bucket its lower bound.
  uint64_t QuantileNs(double q) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace fleetblame

#endif  // COMMON_HISTOGRAM_H_
