// SPDX-License-Identifier: Apache-2.0
//
// Sums rows with equal keys and keeps their number within bounds. Detail goes before bytes do: when
// there are too many rows, the smallest ones lose file, issuer, actor and intent, in this order,
// until they fall together; sums over the window never change.
//
// Threading: one thread.
#ifndef NODE_AGENT_COMPACT_ROW_MERGER_H_
#define NODE_AGENT_COMPACT_ROW_MERGER_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/row_block.h"

namespace fleetblame::agent {

class RowMerger {
 public:
  void Add(const BlockRow& row) { Add(BlockRow(row)); }
  void Add(BlockRow&& row);

  size_t size() const { return rows_.size(); }

  // Keeps at most `max_rows` rows (or as many as devices and operations make). Returns how many
  // rows lost detail.
  uint64_t Limit(size_t max_rows);

  // The rows, sorted by key so that columns compress well; empty afterwards.
  std::vector<BlockRow> Take();

 private:
  struct Key {
    uint32_t dirtier_intent, issuer_intent, dirtier_actor, issuer_actor, device, file;
    uint8_t operation, confidence;
    auto operator<=>(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.dirtier_intent, k.issuer_intent, k.dirtier_actor,
                        k.issuer_actor, k.device, k.file, k.operation, k.confidence);
    }
  };
  static Key KeyOf(const BlockRow& row);

  std::vector<BlockRow> rows_;
  absl::flat_hash_map<Key, uint32_t> index_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_COMPACT_ROW_MERGER_H_
