// SPDX-License-Identifier: Apache-2.0
//
// Sums rows of equal key out of many blocks into one block, histograms included.
//
// Counts are held dense while summing, since adding to an array beats merging lists by far; the
// memory goes with the number of distinct keys, not of rows.
//
// Threading: belongs to one thread.
#ifndef AGGREGATOR_STORE_ROW_MERGER_H_
#define AGGREGATOR_STORE_ROW_MERGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/histogram.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

class RowMerger {
 public:
  // Adds all rows of a valid block. With `map_device` every device number is replaced by what it
  // returns, and with `drop_files` every file by none.
  using DeviceMap = std::function<uint32_t(uint32_t)>;
  void Add(const v1::RowBlock& block, const DeviceMap& map_device = nullptr,
           bool drop_files = false);

  struct Limits {
    uint32_t files = UINT32_MAX;  // the largest by bytes keep their name
    size_t rows = SIZE_MAX;       // beyond it rows lose their file, then their actors
    uint32_t other_actor = 0;     // what actors become then
  };
  // The sum; the merger is empty afterwards.
  v1::RowBlock Finish(const Limits& limits);
  v1::RowBlock Finish() { return Finish(Limits()); }

  size_t keys() const { return sums_.size(); }

 private:
  struct Key {
    uint32_t dirtier_intent = 0;
    uint32_t issuer_intent = 0;
    uint32_t dirtier_actor = 0;
    uint32_t issuer_actor = 0;
    uint32_t device = 0;
    uint32_t file = 0;
    uint32_t op_confidence = 0;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.dirtier_intent, k.issuer_intent, k.dirtier_actor,
                        k.issuer_actor, k.device, k.file, k.op_confidence);
    }
  };
  struct Dense {
    std::array<uint64_t, kHistogramBuckets> counts{};
    int low = kHistogramBuckets;  // bounds of what is not zero
    int high = -1;
    void Add(int bucket, uint64_t count);
    void Merge(const Dense& other);
    void Clear();
  };
  struct Sum {
    Key key;
    uint64_t ios = 0;
    uint64_t bytes = 0;
    uint64_t wait_ns = 0;
    uint64_t io_ns = 0;
    uint64_t errors = 0;
    uint64_t requeues = 0;
    Dense wait;
    Dense io;
  };

  Sum& SumOf(const Key& key);
  void FoldFiles(uint32_t keep);
  void FoldActors(size_t keep, uint32_t other_actor);
  // Gives every sum the key that `change` makes of its own, and merges those that meet.
  void Rekey(const std::function<void(Key*)>& change);

  absl::flat_hash_map<Key, size_t> index_;
  std::vector<std::unique_ptr<Sum>> sums_;
  std::vector<std::unique_ptr<Sum>> spare_;  // used before; making one means clearing 3 KiB
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROW_MERGER_H_
