// SPDX-License-Identifier: Apache-2.0
//
// Raw windows told by how they share out the rows of the one-minute bucket that they make up. A row
// of the bucket is the sum of the rows of equal key in its windows, so its key, and whatever the
// windows have in common, need not be said again: of each window but a row's last one only the
// share is told, and the last one gets the rest. That takes a third of what the windows take by
// themselves.
//
// Such a value can be read only together with the bucket's block, byte for byte the one that it was
// made for; a checksum tells. What is not a plain sum (rows that were folded to keep the block
// small, windows with two rows of one key, absurd counts) cannot be told this way.
//
//   encoding(1 byte, 3) checksum(4) windows(varint) { end - last instant(varint) span(varint) }
//   flags (varint) bits
//
// docs/store-format.md has the bits.
//
// Threading: pure functions. Errors: DATA_LOSS for what cannot be read; no input does harm.
#ifndef AGGREGATOR_STORE_WINDOW_SPLIT_H_
#define AGGREGATOR_STORE_WINDOW_SPLIT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// More windows in one bucket stay as they are.
inline constexpr size_t kMaxSplitWindows = 64;

struct SplitWindow {
  uint64_t last_ns = 0;  // the last instant that it covers
  uint64_t span_ns = 0;
  v1::RowBlock rows;  // as DecodeRows yields it: sorted by key
};

// Whether a value under the key of rows is one of these.
bool IsWindowSplit(std::string_view value);

// `bucket_value` is the encoded block of the bucket whose last instant is `bucket_last_ns`. Nothing
// when the windows cannot be told by it.
std::optional<std::string> EncodeWindowSplit(std::string_view bucket_value, uint64_t bucket_last_ns,
                                             std::span<const SplitWindow> windows);

// The windows in the order in which they were given.
absl::Status DecodeWindowSplit(std::string_view value, std::string_view bucket_value,
                               uint64_t bucket_last_ns, std::vector<SplitWindow>* windows);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_WINDOW_SPLIT_H_
