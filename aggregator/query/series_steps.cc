// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/series_steps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

// Steps that read well on an axis; beyond the last, whole days.
constexpr std::array<uint64_t, 13> kPleasant = {
    kMinuteNs,      2 * kMinuteNs, 5 * kMinuteNs, 10 * kMinuteNs, 20 * kMinuteNs,
    30 * kMinuteNs, kHourNs,       2 * kHourNs,   3 * kHourNs,    6 * kHourNs,
    12 * kHourNs,   kDayNs,        2 * kDayNs};

constexpr std::array<std::pair<Level, uint64_t>, 4> kCoarsestFirst = {{
    {Level::k1d, kDayNs},
    {Level::k1h, kHourNs},
    {Level::k10m, 10 * kMinuteNs},
    {Level::k1m, kMinuteNs},
}};

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t StepCount(const ResolvedRange& range, uint64_t step_ns) {
  uint64_t first = range.start_unix_ns / step_ns;
  uint64_t last = (range.end_unix_ns - 1) / step_ns;
  return last - first + 1;
}

uint64_t ChooseStep(const ResolvedRange& range, uint64_t raw_window_ns) {
  if (StepCount(range, raw_window_ns) <= kDefaultPoints) return raw_window_ns;
  for (uint64_t step : kPleasant) {
    if (step > raw_window_ns && StepCount(range, step) <= kDefaultPoints) return step;
  }
  // The range may touch one step more than fits into its length.
  return RoundUp(range.length_ns() / (kDefaultPoints - 1) + 1, kDayNs);
}

}  // namespace

size_t SeriesSteps::StepOf(uint64_t unix_ns) const {
  if (unix_ns < first_unix_ns) return count;
  return std::min<uint64_t>((unix_ns - first_unix_ns) / step_ns, count);
}

absl::StatusOr<SeriesSteps> MakeSteps(const ResolvedRange& range, uint64_t wanted_ns,
                                      uint64_t raw_window_ns) {
  constexpr uint64_t kLongest = 366 * kDayNs;
  if (wanted_ns > kLongest) {
    return absl::InvalidArgumentError("step_ns: a step may be one year at most");
  }
  uint64_t step = wanted_ns == 0 ? ChooseStep(range, raw_window_ns) : wanted_ns;
  SeriesSteps steps;
  uint64_t unit = raw_window_ns;
  for (const auto& [level, length] : kCoarsestFirst) {
    if (step < length) continue;
    steps.coarsest = level;
    unit = length;
    break;
  }
  steps.step_ns = RoundUp(step, unit);
  uint64_t count = StepCount(range, steps.step_ns);
  if (count > kMaxPoints) {
    return absl::InvalidArgumentError(absl::StrCat("step_ns: the range holds ", count, " steps of ",
                                                   steps.step_ns / kSecondNs, " s, and at most ",
                                                   kMaxPoints, " are given; take a longer step"));
  }
  steps.first_unix_ns = range.start_unix_ns / steps.step_ns * steps.step_ns;
  steps.count = count;
  return steps;
}

}  // namespace fleetblame::aggregator
