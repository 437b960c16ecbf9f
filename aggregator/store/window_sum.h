// SPDX-License-Identifier: Apache-2.0
//
// Sums the rows of sorted windows by walking them side by side: what RowMerger does for blocks in
// any order, in a third of the time.
//
// Threading: pure functions.
#ifndef AGGREGATOR_STORE_WINDOW_SUM_H_
#define AGGREGATOR_STORE_WINDOW_SUM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "aggregator/store/window_split.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// Nothing when there would be more rows or files than these, so that some must be folded.
std::optional<v1::RowBlock> SumWindows(std::span<const SplitWindow> windows, size_t max_rows,
                                       uint32_t max_files);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_WINDOW_SUM_H_
