// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/robust.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fleetblame::aggregator {
namespace {

constexpr double kMadToSigma = 1.4826;
constexpr double kMeanDeviationToSigma = 1.2533;
constexpr size_t kFewest = 3;

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  double below = *std::max_element(values.begin(), middle);
  return below + (*middle - below) / 2;
}

std::optional<double> RobustScale::Z(double value) const {
  if (!unit.has_value()) return std::nullopt;
  return (value - median) / *unit;
}

RobustScale MeasureSpread(const std::vector<double>& values) {
  RobustScale scale;
  scale.median = Median(values);
  std::vector<double> distances;
  double sum = 0;
  for (double v : values) {
    distances.push_back(std::fabs(v - scale.median));
    sum += distances.back();
  }
  scale.mad = Median(distances);
  if (values.size() < kFewest) return scale;
  if (scale.mad > 0) {
    scale.unit = kMadToSigma * scale.mad;
  } else if (sum > 0) {
    scale.unit = kMeanDeviationToSigma * sum / static_cast<double>(values.size());
  }
  return scale;
}

}  // namespace fleetblame::aggregator
