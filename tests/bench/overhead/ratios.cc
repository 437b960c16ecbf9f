// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/ratios.h"

#include <algorithm>

namespace fleetblame::testing {

Summary Summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  summary.median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  summary.low = values.front();
  summary.high = values.back();
  summary.count = static_cast<int>(n);
  return summary;
}

}  // namespace fleetblame::testing
