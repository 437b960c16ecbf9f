// SPDX-License-Identifier: Apache-2.0
//
// Summary of repeated ratios: on a noisy machine the median of pairwise ratios is what can be
// trusted, and the range says how far. Values; not thread-safe.
#ifndef TESTS_BENCH_OVERHEAD_RATIOS_H_
#define TESTS_BENCH_OVERHEAD_RATIOS_H_

#include <vector>

namespace fleetblame::testing {

struct Summary {
  double median = 0;
  double low = 0;   // smallest
  double high = 0;  // largest
  int count = 0;
};

// All zero for no values.
Summary Summarize(std::vector<double> values);

}  // namespace fleetblame::testing

#endif  // TESTS_BENCH_OVERHEAD_RATIOS_H_
