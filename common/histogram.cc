// SPDX-License-Identifier: Apache-2.0
#include "common/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fleetblame {

int HistogramBucket(uint64_t value_ns) {
  if (value_ns < (uint64_t{1} << kHistogramFirstOctave)) return 0;
  int octave = std::bit_width(value_ns) - 1;
  if (octave >= kHistogramFirstOctave + kHistogramOctaves) return kHistogramBuckets - 1;
  int sub = static_cast<int>((value_ns >> (octave - 3)) & (kHistogramSubBuckets - 1));
  return 1 + (octave - kHistogramFirstOctave) * kHistogramSubBuckets + sub;
}

uint64_t HistogramLowerNs(int bucket) {
  if (bucket <= 0) return 0;
  if (bucket >= kHistogramBuckets - 1) {
    return uint64_t{1} << (kHistogramFirstOctave + kHistogramOctaves);
  }
  int octave = kHistogramFirstOctave + (bucket - 1) / kHistogramSubBuckets;
  uint64_t sub = (bucket - 1) % kHistogramSubBuckets;
  return (uint64_t{1} << octave) + (sub << (octave - 3));
}

uint64_t HistogramUpperNs(int bucket) {
  if (bucket >= kHistogramBuckets - 1) return std::numeric_limits<uint64_t>::max();
  return HistogramLowerNs(bucket + 1);
}

void SparseHistogram::Add(int bucket, uint64_t count) {
  if (count == 0) return;
  auto b = static_cast<uint16_t>(bucket);
  if (entries_.empty() || entries_.back().first < b) {
    entries_.emplace_back(b, count);
    return;
  }
  auto at = std::lower_bound(entries_.begin(), entries_.end(), b,
                             [](const Entry& e, uint16_t key) { return e.first < key; });
  if (at->first == b) {
    at->second += count;
  } else {
    entries_.insert(at, {b, count});
  }
}

void SparseHistogram::Merge(const SparseHistogram& other) {
  if (other.entries_.empty()) return;
  std::vector<Entry> merged;
  merged.reserve(entries_.size() + other.entries_.size());
  auto a = entries_.begin();
  auto b = other.entries_.begin();
  while (a != entries_.end() && b != other.entries_.end()) {
    if (a->first < b->first) {
      merged.push_back(*a++);
    } else if (b->first < a->first) {
      merged.push_back(*b++);
    } else {
      merged.emplace_back(a->first, a->second + b->second);
      ++a;
      ++b;
    }
  }
  merged.insert(merged.end(), a, entries_.end());
  merged.insert(merged.end(), b, other.entries_.end());
  entries_ = std::move(merged);
}

uint64_t SparseHistogram::total() const {
  uint64_t sum = 0;
  for (const Entry& e : entries_) sum += e.second;
  return sum;
}

uint64_t SparseHistogram::QuantileNs(double q) const {
  uint64_t n = total();
  if (n == 0) return 0;
  auto rank = static_cast<uint64_t>(std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(n)));
  rank = std::clamp<uint64_t>(rank, 1, n);
  uint64_t seen = 0;
  for (const Entry& e : entries_) {
    seen += e.second;
    if (seen < rank) continue;
    if (e.first == kHistogramBuckets - 1) return HistogramLowerNs(e.first);
    return HistogramLowerNs(e.first) + (HistogramUpperNs(e.first) - HistogramLowerNs(e.first)) / 2;
  }
  return 0;
}

}  // namespace fleetblame
