// SPDX-License-Identifier: Apache-2.0
//
// For tests of how rows are kept: rows as text, to be compared whatever their order, and histograms
// drawn at random.
//
// Pure functions.
#ifndef AGGREGATOR_STORE_ROW_TESTING_H_
#define AGGREGATOR_STORE_ROW_TESTING_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/histogram.h"
#include "common/row_block.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// All of each row, sorted.
std::vector<std::string> RowTexts(const v1::RowBlock& block, bool histograms = true);

// Adds `total` IOs with times of up to `ns_bits` bits, small ones as often as large ones; adds the
// times to `sum_ns` if it is given.
void DrawHistogram(uint64_t total, int ns_bits, std::mt19937_64& random, SparseHistogram* histogram,
                   uint64_t* sum_ns);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROW_TESTING_H_
