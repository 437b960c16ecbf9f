// SPDX-License-Identifier: Apache-2.0
//
// The `rows` field of a Batch: a serialized RowBlock, compressed when that makes it smaller.
//
// Threading: pure functions.
#ifndef NODE_AGENT_COMPACT_ROW_CODEC_H_
#define NODE_AGENT_COMPACT_ROW_CODEC_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/dictionary/dictionary.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::agent {

// Sets rows, encoding, rows_plain_bytes and row_count. No rows leave all four empty.
void EncodeRows(const v1::RowBlock& block, int row_count, v1::Batch* batch);

// The reverse; DATA_LOSS when the field is not what EncodeRows wrote.
absl::StatusOr<v1::RowBlock> DecodeRows(const v1::Batch& batch);

// Every dictionary number that the batch refers to.
absl::StatusOr<DictionaryRefs> CollectRefs(const v1::Batch& batch);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_COMPACT_ROW_CODEC_H_
