// SPDX-License-Identifier: Apache-2.0
//
// Statistics that a few wild values do not move: median, median absolute deviation, and how far a
// value lies from the rest in units of it. Pure functions.
#ifndef AGGREGATOR_QUERY_ROBUST_H_
#define AGGREGATOR_QUERY_ROBUST_H_

#include <optional>
#include <vector>

namespace fleetblame::aggregator {

// 0 for an empty list; the mean of the middle two for an even one.
double Median(std::vector<double> values);

struct RobustScale {
  double median = 0;
  double mad = 0;
  // What a distance from the median is divided by: 1.4826 * MAD, which for normal values is their
  // standard deviation; when more than half of the values are equal, so that MAD is 0, 1.2533 times
  // the mean absolute deviation from the median, which is the same. Absent for fewer than three
  // values and when all are equal.
  std::optional<double> unit;

  std::optional<double> Z(double value) const;
};

RobustScale MeasureSpread(const std::vector<double>& values);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_ROBUST_H_
