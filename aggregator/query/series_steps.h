// SPDX-License-Identifier: Apache-2.0
//
// The steps of a series: how long they are, where they begin, and the coarsest stored blocks that
// fit into them. Steps begin at multiples of their length since 1970 (UTC). Pure.
//
// A step is a multiple of the longest stored resolution that is not longer than it: of the agents'
// window below a minute, of a minute below ten, and so on. So every stored block falls into one
// step.
#ifndef AGGREGATOR_QUERY_SERIES_STEPS_H_
#define AGGREGATOR_QUERY_SERIES_STEPS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "aggregator/query/time_range.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

inline constexpr uint64_t kDefaultPoints = 120;
inline constexpr uint64_t kMaxPoints = 10'000;

struct SeriesSteps {
  uint64_t step_ns = 0;
  uint64_t first_unix_ns = 0;
  size_t count = 0;
  Level coarsest = Level::kRaw;

  uint64_t end_unix_ns() const { return first_unix_ns + step_ns * count; }
  // The step to which an instant belongs, or `count` when to none.
  size_t StepOf(uint64_t unix_ns) const;
};

// `wanted_ns` 0 = at most kDefaultPoints steps. INVALID_ARGUMENT for more than kMaxPoints.
absl::StatusOr<SeriesSteps> MakeSteps(const ResolvedRange& range, uint64_t wanted_ns,
                                      uint64_t raw_window_ns);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_SERIES_STEPS_H_
