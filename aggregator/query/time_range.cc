// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/time_range.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace fleetblame::aggregator {
namespace {

// The year 2262; far enough from the top that rounding up cannot overflow.
constexpr uint64_t kLatestNs = uint64_t{1} << 63;

std::string Text(uint64_t unix_ns) {
  return absl::FormatTime(absl::RFC3339_sec, absl::FromUnixNanos(static_cast<int64_t>(unix_ns)),
                          absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<ResolvedRange> ResolveRange(const v1::TimeRange& range, uint64_t now_unix_ns) {
  ResolvedRange out;
  out.end_unix_ns = range.has_end_unix_ns() ? range.end_unix_ns() : now_unix_ns;
  if (out.end_unix_ns >= kLatestNs) {
    return absl::InvalidArgumentError(absl::StrCat("range: end_unix_ns ", out.end_unix_ns,
                                                   " is after the year 2262; give nanoseconds"));
  }
  if (range.has_start_unix_ns()) {
    out.start_unix_ns = range.start_unix_ns();
  } else {
    out.start_unix_ns = out.end_unix_ns > kHourNs ? out.end_unix_ns - kHourNs : 0;
  }
  if (out.start_unix_ns >= kLatestNs) {
    return absl::InvalidArgumentError(absl::StrCat("range: start_unix_ns ", out.start_unix_ns,
                                                   " is after the year 2262; give nanoseconds"));
  }
  if (out.start_unix_ns >= out.end_unix_ns) {
    return absl::InvalidArgumentError(absl::StrCat("range: the start (", Text(out.start_unix_ns),
                                                   ") must be before the end (",
                                                   Text(out.end_unix_ns), ")"));
  }
  return out;
}

}  // namespace fleetblame::aggregator
