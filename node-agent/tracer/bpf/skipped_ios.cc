// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/skipped_ios.h"

#include <utility>

#include "node-agent/tracer/bpf/proportion.h"

namespace fleetblame::agent {
namespace {

// What a sample stands for beyond itself.
Wide Unseen(const Sample& sample, uint64_t value) { return Wide{sample.stands_for - 1} * value; }

Wide SumUnseen(const std::vector<Sample>& samples, uint64_t RowValues::*value) {
  Wide sum = 0;
  for (const Sample& sample : samples) sum += Unseen(sample, sample.row.values.*value);
  return sum;
}

}  // namespace

std::vector<Sample> ChargeSkipped(const std::vector<Sample>& samples, const SkippedIos& skipped) {
  const Wide bytes = SumUnseen(samples, &RowValues::bytes);
  if (bytes == 0) return {};
  const Wide ios = SumUnseen(samples, &RowValues::ios);
  Dealer deal_bytes(skipped.bytes, bytes);
  // Pieces of a split bio may have bytes and no IO of their own.
  Dealer deal_ios(skipped.ios, ios != 0 ? ios : bytes);
  std::vector<Sample> charged;
  for (const Sample& sample : samples) {
    const RowValues& seen = sample.row.values;
    Sample part{.stands_for = sample.stands_for, .groups_per_sample = sample.groups_per_sample};
    Row& row = part.row;
    row.key = sample.row.key;
    row.key.confidence = Confidence::kEstimated;
    row.values.bytes = deal_bytes.Next(Unseen(sample, seen.bytes));
    row.values.ios = deal_ios.Next(Unseen(sample, ios != 0 ? seen.ios : seen.bytes));
    if (row.values.bytes == 0 && row.values.ios == 0) continue;
    row.values.wait_ns = Scaled(seen.wait_ns, seen.ios, row.values.ios);
    row.values.io_ns = Scaled(seen.io_ns, seen.ios, row.values.ios);
    row.values.wait = Scaled(seen.wait, row.values.ios);
    row.values.io = Scaled(seen.io, row.values.ios);
    charged.push_back(std::move(part));
  }
  return charged;
}

}  // namespace fleetblame::agent
