// SPDX-License-Identifier: Apache-2.0
#include "cli/sampling_error.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace fleetblame::cli {

double SampleWeight(const v1::Summary& summary) {
  auto loss = [&](const char* name) {
    const auto at = summary.losses().find(name);
    return at == summary.losses().end() ? 0 : static_cast<double>(at->second);
  };
  const double estimated = loss("ios_estimated");
  return estimated == 0 ? 0 : loss("ios_estimated_variance") / estimated;
}

double RelativeError95(const v1::Metrics& metrics, double sample_weight) {
  if (metrics.ios() == 0) return 0;
  return 1.96 * std::sqrt(sample_weight * static_cast<double>(metrics.estimated_ios())) /
         static_cast<double>(metrics.ios());
}

std::string ErrorText(const v1::Metrics& metrics, double sample_weight) {
  if (metrics.estimated_ios() == 0) return "-";
  if (sample_weight == 0) return "?";
  const double error = RelativeError95(metrics, sample_weight);
  if (error >= 1) return ">100 %";
  return absl::StrFormat(error < 0.0995 ? "±%.1f %%" : "±%.0f %%", 100 * error);
}

}  // namespace fleetblame::cli
