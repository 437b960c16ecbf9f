// SPDX-License-Identifier: Apache-2.0
//
// Sums of what one host said of tag starvation (tagwait.proto), which travels beside the rows. What
// is stored is a v1.TagWaits too, with the store's numbers for devices, intents and actors; the
// numbers of its sets mean something within one value only.
//
// Sums stay exact. When there are too many rows the small ones lose who waited, then at which
// hardware queue and how large the pool was; holders beyond a bound become holder 0.
//
// Threading: belongs to one thread. Units: nanoseconds. Sums that would overflow stay at the
// largest number: no peer can make them small again.
#ifndef AGGREGATOR_STORE_TAG_WAIT_SUMS_H_
#define AGGREGATOR_STORE_TAG_WAIT_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "proto/fleetblame/v1/tagwait.pb.h"

namespace fleetblame::aggregator {

class TagWaitSums {
 public:
  struct Limits {
    size_t rows = 4096;
    size_t holders_of_pool = 64;
  };

  // `waits` is later than what was added before: settings and the number of open waits are the
  // last ones.
  void Add(const v1::TagWaits& waits);
  bool empty() const { return !any_; }
  // The sum, with sets numbered from 1; nothing is left afterwards.
  v1::TagWaits Finish(const Limits& limits);
  v1::TagWaits Finish() { return Finish(Limits()); }

 private:
  struct RowKey {
    uint32_t device = 0;
    uint32_t set = 0;
    std::optional<uint32_t> hctx;
    int kind = 0;
    bool reserved = false;
    std::optional<uint32_t> nr_tags;
    int source = 0;
    uint32_t intent = 0;
    uint32_t actor = 0;
    auto operator<=>(const RowKey&) const = default;
  };
  struct RowSum {
    v1::TagWaitRow values;
    std::map<uint32_t, uint64_t> wait;  // bucket to count
  };
  using Rows = std::map<RowKey, RowSum>;
  // Whose wait for which pool: device, set, kind, reserved.
  using PoolKey = std::tuple<uint32_t, uint32_t, int, bool>;
  struct Held {
    uint64_t tags_sum = 0;
    uint64_t tags_max = 0;
  };
  struct Pool {
    std::map<uint32_t, Held> holders;
    uint64_t samples = 0;
    uint64_t nr_tags_sum = 0;
  };

  // This object's number for a set of the message that is being added.
  uint32_t SetNumber(const v1::TagSet& set);
  void AddHolders(const v1::TagWaits& waits, const std::map<uint32_t, uint32_t>& sets);
  void FoldRows(size_t keep);
  static void AddRow(const v1::TagWaitRow& row, RowSum* sum);
  static void MergeRow(const RowSum& from, RowSum* into);

  bool any_ = false;
  std::map<std::string, uint32_t> set_numbers_;  // content without number
  std::map<uint32_t, v1::TagSet> sets_;
  std::map<std::pair<uint32_t, uint32_t>, v1::TagDisk> disks_;  // device, set
  Rows rows_;
  std::map<PoolKey, Pool> pools_;
  std::optional<uint64_t> open_waits_;
  v1::TagWaitSource source_ = v1::TAG_WAIT_SOURCE_UNSPECIFIED;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_TAG_WAIT_SUMS_H_
