// SPDX-License-Identifier: Apache-2.0
#include "cli/sampling_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fleetblame::cli {
namespace {

v1::Metrics Make(uint64_t ios, uint64_t estimated) {
  v1::Metrics metrics;
  metrics.set_ios(ios);
  metrics.set_estimated_ios(estimated);
  return metrics;
}

TEST(SamplingError, WeightOfASummary) {
  v1::Summary summary;
  EXPECT_EQ(SampleWeight(summary), 0);
  (*summary.mutable_losses())["ios_estimated"] = 7000;
  (*summary.mutable_losses())["ios_estimated_variance"] = 56000;
  EXPECT_EQ(SampleWeight(summary), 8);
}

TEST(SamplingError, ForPeople) {
  EXPECT_EQ(ErrorText(Make(100, 0), 8), "-");
  EXPECT_EQ(ErrorText(Make(8000, 7000), 8), "±5.8 %");
  EXPECT_EQ(ErrorText(Make(800, 700), 8), "±18 %");
  EXPECT_EQ(ErrorText(Make(8, 7), 8), ">100 %");
  EXPECT_EQ(ErrorText(Make(8, 7), 0), "?");
  EXPECT_EQ(RelativeError95(Make(0, 0), 8), 0);
}

// Against what sampling one in eight really does to a count.
TEST(SamplingError, IsTheErrorOfSampling) {
  std::mt19937 random(7);
  constexpr int kIos = 4000;
  constexpr int kRuns = 2000;
  int within = 0;
  for (int run = 0; run < kRuns; ++run) {
    int looked_at = 0;
    for (int i = 0; i < kIos; ++i) looked_at += random() % 8 == 0;
    const double error = RelativeError95(Make(8 * looked_at, 7 * looked_at), 8);
    within += std::abs(8.0 * looked_at - kIos) <= error * 8 * looked_at;
  }
  EXPECT_NEAR(static_cast<double>(within) / kRuns, 0.95, 0.02);
}

}  // namespace
}  // namespace fleetblame::cli
