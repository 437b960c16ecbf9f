// SPDX-License-Identifier: Apache-2.0
//
// A block of rows as a value in the database, packed to about a quarter of its protobuf.
//
//   encoding(1 byte) span(varint: nanoseconds that the block covers) body
//
// Encoding 1: the body is a serialized v1::RowBlock. Encoding 2, the usual one: rows sorted by key,
// columns as bits, each number told from what is known already; docs/store-format.md has the whole
// of it. Histograms stand in sections of their own, so that whoever needs none skips them.
//
// A block comes back with the same rows, in order of their keys; table entries that no row uses and
// empty buckets are gone.
//
// Threading: pure functions. Errors: DATA_LOSS for what cannot be read; no input does harm.
#ifndef AGGREGATOR_STORE_ROW_CODEC_H_
#define AGGREGATOR_STORE_ROW_CODEC_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// `rows` must be valid (ValidateRowBlock).
std::string EncodeRows(const v1::RowBlock& rows, uint64_t span_ns);

// Fills `*rows` and `*span_ns`; the block is valid. Without `histograms` it has none.
absl::Status DecodeRows(std::string_view value, v1::RowBlock* rows, uint64_t* span_ns,
                        bool histograms = true);

// Whether any row of an encoded block may name one of `intents` (sorted), without reading the rows.
absl::Status MentionsIntents(std::string_view value, std::span<const uint32_t> intents,
                             bool* mentioned);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROW_CODEC_H_
