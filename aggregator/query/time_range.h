// SPDX-License-Identifier: Apache-2.0
//
// The time range of a request: absent end = now, absent start = one hour before the end. Pure
// functions. Errors: INVALID_ARGUMENT for an empty range or one beyond what nanoseconds can count.
#ifndef AGGREGATOR_QUERY_TIME_RANGE_H_
#define AGGREGATOR_QUERY_TIME_RANGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

inline constexpr uint64_t kSecondNs = 1'000'000'000;
inline constexpr uint64_t kMinuteNs = 60 * kSecondNs;
inline constexpr uint64_t kHourNs = 60 * kMinuteNs;
inline constexpr uint64_t kDayNs = 24 * kHourNs;

// Half-open [start, end), never empty.
struct ResolvedRange {
  uint64_t start_unix_ns = 0;
  uint64_t end_unix_ns = 0;

  uint64_t length_ns() const { return end_unix_ns - start_unix_ns; }
};

absl::StatusOr<ResolvedRange> ResolveRange(const v1::TimeRange& range, uint64_t now_unix_ns);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_TIME_RANGE_H_
