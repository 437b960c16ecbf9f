// SPDX-License-Identifier: Apache-2.0
//
// Small pictures from block characters. Pure functions.
#ifndef CLI_BARS_H_
#define CLI_BARS_H_

#include <string>
#include <vector>

#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::cli {

// One character a value, height relative to the largest; zero is a blank, anything more at least ▁.
std::string Sparkline(const std::vector<double>& values);

// A horizontal bar of at most `width` columns, in eighths; a positive value shows at least ▏.
std::string Bar(double value, double largest, int width);

// A histogram of durations with one character for each power of four from 1 µs to 17 s (12
// characters), so that two histograms one above the other can be compared.
std::string HistogramSpark(const v1::Histogram& histogram);

}  // namespace fleetblame::cli

#endif  // CLI_BARS_H_
