// SPDX-License-Identifier: Apache-2.0
#include "cli/sampling_error.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace fleetblame::cli {

// Each of n IOs stood for N = ios / n, so that the variance of their sum is n (N - 1) N.
std::optional<double> RelativeError95(const v1::Metrics& metrics) {
  const double ios = static_cast<double>(metrics.ios());
  const double estimated = static_cast<double>(metrics.estimated_ios());
  const double looked_at = ios - estimated;
  if (estimated == 0 || looked_at <= 0) return std::nullopt;
  return 1.96 * std::sqrt(estimated / (looked_at * ios));
}

std::string ErrorText(const v1::Metrics& metrics) {
  if (metrics.estimated_ios() == 0) return "-";
  const std::optional<double> error = RelativeError95(metrics);
  if (!error.has_value()) return "?";
  return absl::StrFormat(*error < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * *error);
}

}  // namespace fleetblame::cli
