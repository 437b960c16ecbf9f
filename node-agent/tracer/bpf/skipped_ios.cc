// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/skipped_ios.h"

#include <utility>

namespace fleetblame::agent {
namespace {

using Wide = unsigned __int128;

// Deals out a total in proportion to weights, one after the other, so that the parts add up to it.
class Dealer {
 public:
  Dealer(uint64_t total, Wide weights) : total_(total), weights_(weights) {}

  uint64_t Next(Wide weight) {
    if (weights_ == 0) return 0;
    seen_ += weight;
    // Below 2^64 * 2^64: a weight is a sum of bytes, or of IOs.
    const uint64_t dealt = static_cast<uint64_t>(seen_ * total_ / weights_);
    const uint64_t part = dealt - dealt_;
    dealt_ = dealt;
    return part;
  }

 private:
  const uint64_t total_;
  const Wide weights_;
  Wide seen_ = 0;
  uint64_t dealt_ = 0;
};

// What a sample stands for beyond itself.
Wide Unseen(const Sample& sample, uint64_t value) { return Wide{sample.stands_for - 1} * value; }

Wide SumUnseen(const std::vector<Sample>& samples, uint64_t RowValues::*value) {
  Wide sum = 0;
  for (const Sample& sample : samples) sum += Unseen(sample, sample.row.values.*value);
  return sum;
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

}  // namespace

std::vector<Row> ChargeSkipped(const std::vector<Sample>& samples, const SkippedIos& skipped,
                               uint64_t* variance) {
  const Wide bytes = SumUnseen(samples, &RowValues::bytes);
  if (bytes == 0) return {};
  const Wide ios = SumUnseen(samples, &RowValues::ios);
  Dealer deal_bytes(skipped.bytes, bytes);
  // Pieces of a split bio may have bytes and no IO of their own.
  Dealer deal_ios(skipped.ios, ios != 0 ? ios : bytes);
  std::vector<Row> rows;
  for (const Sample& sample : samples) {
    const RowValues& seen = sample.row.values;
    Row row;
    row.key = sample.row.key;
    row.key.confidence = Confidence::kEstimated;
    row.values.bytes = deal_bytes.Next(Unseen(sample, seen.bytes));
    row.values.ios = deal_ios.Next(Unseen(sample, ios != 0 ? seen.ios : seen.bytes));
    if (row.values.bytes == 0 && row.values.ios == 0) continue;
    row.values.wait_ns = Scaled(seen.wait_ns, seen.ios, row.values.ios);
    row.values.io_ns = Scaled(seen.io_ns, seen.ios, row.values.ios);
    row.values.wait = Scaled(seen.wait, row.values.ios);
    row.values.io = Scaled(seen.io, row.values.ios);
    if (variance != nullptr) *variance += row.values.ios * sample.stands_for;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace fleetblame::agent
