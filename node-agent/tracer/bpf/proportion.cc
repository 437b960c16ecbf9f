// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/proportion.h"

namespace fleetblame::agent {

uint64_t Dealer::Next(Wide weight) {
  if (weights_ == 0) return 0;
  seen_ += weight;
  // Below 2^64 * 2^64: a weight is a sum of bytes, or of IOs.
  const uint64_t dealt = static_cast<uint64_t>(seen_ * total_ / weights_);
  const uint64_t part = dealt - dealt_;
  dealt_ = dealt;
  return part;
}

SparseHistogram Scaled(const SparseHistogram& histogram, uint64_t total) {
  Wide counts = 0;
  for (const auto& [bucket, count] : histogram.entries()) counts += count;
  Dealer dealer(total, counts);
  SparseHistogram scaled;
  for (const auto& [bucket, count] : histogram.entries()) {
    if (uint64_t part = dealer.Next(count); part != 0) scaled.Add(bucket, part);
  }
  return scaled;
}

uint64_t Scaled(uint64_t sum, uint64_t from, uint64_t to) {
  return from == 0 ? 0 : static_cast<uint64_t>(Wide{sum} * to / from);
}

}  // namespace fleetblame::agent
