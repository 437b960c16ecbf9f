// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/row_merger.h"

#include <algorithm>
#include <utility>

namespace fleetblame::agent {
namespace {

// What a row loses at each step.
constexpr int kFoldSteps = 4;
void Fold(int step, BlockRow& row) {
  switch (step) {
    case 0:
      row.file = 0;
      break;
    case 1:
      row.issuer_intent = 0;
      row.issuer_actor = 0;
      break;
    case 2:
      row.dirtier_actor = 0;
      break;
    default:
      row.dirtier_intent = 0;
      break;
  }
}

}  // namespace

RowMerger::Key RowMerger::KeyOf(const BlockRow& row) {
  return {row.dirtier_intent,
          row.issuer_intent,
          row.dirtier_actor,
          row.issuer_actor,
          row.device,
          row.file,
          static_cast<uint8_t>(row.operation),
          static_cast<uint8_t>(row.confidence)};
}

void RowMerger::Add(BlockRow&& row) {
  auto [it, added] = index_.try_emplace(KeyOf(row), static_cast<uint32_t>(rows_.size()));
  if (added) {
    rows_.push_back(std::move(row));
    return;
  }
  BlockRow& sum = rows_[it->second];
  sum.ios += row.ios;
  sum.bytes += row.bytes;
  sum.wait_ns += row.wait_ns;
  sum.io_ns += row.io_ns;
  sum.errors += row.errors;
  sum.requeues += row.requeues;
  sum.wait.Merge(row.wait);
  sum.io.Merge(row.io);
}

uint64_t RowMerger::Limit(size_t max_rows) {
  uint64_t folded = 0;
  for (int step = 0; step < kFoldSteps && rows_.size() > max_rows; ++step) {
    std::vector<BlockRow> rows = std::move(rows_);
    rows_.clear();
    index_.clear();
    // Ties are broken by the key, so that the same window always gives the same rows.
    std::sort(rows.begin(), rows.end(), [](const BlockRow& a, const BlockRow& b) {
      return std::pair(b.bytes, KeyOf(a)) < std::pair(a.bytes, KeyOf(b));
    });
    // Half of the room is for the largest as they are, the other half for what the rest becomes.
    const size_t kept = max_rows / 2;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i >= kept) {
        const Key before = KeyOf(rows[i]);
        // A row that was among the largest before may not be now.
        for (int s = 0; s <= step; ++s) Fold(s, rows[i]);
        if (KeyOf(rows[i]) != before) ++folded;
      }
      Add(std::move(rows[i]));
    }
  }
  return folded;
}

std::vector<BlockRow> RowMerger::Take() {
  index_.clear();
  std::vector<BlockRow> rows = std::move(rows_);
  rows_.clear();
  std::sort(rows.begin(), rows.end(),
            [](const BlockRow& a, const BlockRow& b) { return KeyOf(a) < KeyOf(b); });
  return rows;
}

}  // namespace fleetblame::agent
