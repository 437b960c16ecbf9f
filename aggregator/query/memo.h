// SPDX-License-Identifier: Apache-2.0
//
// Remembers one small value for each store number. Store numbers are dense, so an array beats a
// hash table: a scan looks here once or more for every row. A number too large to be dense (only a
// damaged store has one) is computed each time instead of being given an array of its size.
//
// Belongs to one thread.
#ifndef AGGREGATOR_QUERY_MEMO_H_
#define AGGREGATOR_QUERY_MEMO_H_

#include <cstdint>
#include <vector>

namespace fleetblame::aggregator {

template <typename T, T kUnknown>
class Memo {
 public:
  // The remembered value for `number`, or `compute(number)`, which must not return kUnknown.
  template <typename Compute>
  T Get(uint32_t number, const Compute& compute) {
    if (number < values_.size() && values_[number] != kUnknown) return values_[number];
    T value = compute(number);
    if (number >= kMaxNumbers) return value;
    if (number >= values_.size()) values_.resize(number + number / 2 + 64, kUnknown);
    values_[number] = value;
    return value;
  }

 private:
  static constexpr uint32_t kMaxNumbers = 1u << 25;
  std::vector<T> values_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_MEMO_H_
