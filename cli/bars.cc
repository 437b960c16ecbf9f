// SPDX-License-Identifier: Apache-2.0
#include "cli/bars.h"

#include <algorithm>
#include <cmath>

#include "common/histogram.h"

namespace fleetblame::cli {
namespace {

constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kWidths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};

}  // namespace

std::string Sparkline(const std::vector<double>& values) {
  double largest = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  std::string out;
  for (double value : values) {
    if (value <= 0 || largest <= 0) {
      out += ' ';
      continue;
    }
    int height = static_cast<int>(std::ceil(8 * value / largest));
    out += kHeights[std::clamp(height, 1, 8) - 1];
  }
  return out;
}

std::string Bar(double value, double largest, int width) {
  if (value <= 0 || largest <= 0 || width <= 0) return "";
  int eighths = static_cast<int>(std::round(8 * width * std::min(1.0, value / largest)));
  eighths = std::max(eighths, 1);
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  return out + kWidths[eighths % 8];
}

std::string HistogramSpark(const v1::Histogram& histogram) {
  std::vector<double> counts(kHistogramOctaves / 2, 0.0);
  int n = std::min(histogram.buckets_size(), histogram.counts_size());
  for (int i = 0; i < n; ++i) {
    int octave = (static_cast<int>(histogram.buckets(i)) - 1) / kHistogramSubBuckets;
    size_t at = std::clamp<size_t>(octave < 0 ? 0 : octave / 2, 0, counts.size() - 1);
    counts[at] += static_cast<double>(histogram.counts(i));
  }
  return Sparkline(counts);
}

}  // namespace fleetblame::cli
