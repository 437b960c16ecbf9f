// SPDX-License-Identifier: Apache-2.0
//
// Sums that stay at the largest number instead of beginning anew at 0: the nanoseconds that the IOs
// of a large fleet took in a month, or what a peer says that sends nonsense, may not fit.
//
// Pure functions.
#ifndef COMMON_SATURATING_H_
#define COMMON_SATURATING_H_

#include <cstdint>
#include <limits>

namespace fleetblame {

// a + b, or the largest number.
constexpr uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

constexpr void Grow(uint64_t* sum, uint64_t more) { *sum = SaturatingAdd(*sum, more); }

// a - b, or the largest or smallest number of a sign.
constexpr int64_t SaturatingDifference(uint64_t a, uint64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a > b ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

}  // namespace fleetblame

#endif  // COMMON_SATURATING_H_
