// SPDX-License-Identifier: Apache-2.0
//
// A block of rows as a value in the database.
//
//   encoding(1 byte) span(varint: nanoseconds that the block covers) body
//
// Encoding 1: the body is a serialized v1::RowBlock; the database compresses it.
//
// Threading: pure functions. Errors: DATA_LOSS for what cannot be read.
#ifndef AGGREGATOR_STORE_ROW_CODEC_H_
#define AGGREGATOR_STORE_ROW_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

std::string EncodeRows(const v1::RowBlock& rows, uint64_t span_ns);

// Fills `*rows` and `*span_ns`; the block is as valid as the one that was encoded.
absl::Status DecodeRows(std::string_view value, v1::RowBlock* rows, uint64_t* span_ns);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROW_CODEC_H_
