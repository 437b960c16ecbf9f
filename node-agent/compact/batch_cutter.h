// SPDX-License-Identifier: Apache-2.0
//
// Cuts the rows of one window into batches that fit a message, and cuts a batch that turned out not
// to fit into smaller ones.
//
// Threading: pure functions.
#ifndef NODE_AGENT_COMPACT_BATCH_CUTTER_H_
#define NODE_AGENT_COMPACT_BATCH_CUTTER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/row_block.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::agent {

struct CutLimits {
  int max_rows = 4000;
  uint64_t max_bytes = 256u << 10;  // of the columns before compression
};

// At least one batch. `head` gives everything but the rows; coverage, losses, gaps and
// tag waits go into the first batch only, so that they count once.
std::vector<v1::Batch> CutBatches(const v1::Batch& head, const std::vector<BlockRow>& rows,
                                  const CutLimits& limits);

// Two or more batches that together say what `batch` says. OUT_OF_RANGE when it holds a single row
// and nothing else that could be cut.
absl::StatusOr<std::vector<v1::Batch>> SplitBatch(const v1::Batch& batch);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_COMPACT_BATCH_CUTTER_H_
