// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/batch_cutter.h"

#include "absl/strings/str_cat.h"
#include "node-agent/compact/row_codec.h"

namespace fleetblame::agent {
namespace {

v1::Batch WithoutContents(const v1::Batch& head) {
  v1::Batch batch;
  batch.set_spool_epoch(head.spool_epoch());
  batch.set_dictionary_id(head.dictionary_id());
  *batch.mutable_window() = head.window();
  return batch;
}

}  // namespace

std::vector<v1::Batch> CutBatches(const v1::Batch& head, const std::vector<BlockRow>& rows,
                                  const CutLimits& limits) {
  std::vector<v1::Batch> batches;
  RowBlockBuilder builder;
  auto finish = [&] {
    v1::Batch batch = WithoutContents(head);
    if (batches.empty()) {
      *batch.mutable_coverage() = head.coverage();
      *batch.mutable_losses() = head.losses();
      *batch.mutable_gaps() = head.gaps();
      if (head.has_tag_waits()) *batch.mutable_tag_waits() = head.tag_waits();
    }
    const int count = builder.rows();
    EncodeRows(builder.Finish(), count, &batch);
    batches.push_back(std::move(batch));
  };
  for (const BlockRow& row : rows) {
    if (builder.rows() > 0 &&
        (builder.rows() >= limits.max_rows || builder.approximate_bytes() >= limits.max_bytes)) {
      finish();
    }
    builder.Add(row);
  }
  if (builder.rows() > 0 || batches.empty()) finish();
  return batches;
}

absl::StatusOr<std::vector<v1::Batch>> SplitBatch(const v1::Batch& batch) {
  auto block = DecodeRows(batch);
  if (!block.ok()) return block.status();
  std::vector<BlockRow> rows;
  if (batch.row_count() > 0) {
    RowBlockReader reader(*block);
    for (BlockRow row; reader.Next(&row);) rows.push_back(row);
  }
  if (rows.size() < 2) {
    return absl::OutOfRangeError(
        absl::StrCat("batch ", batch.seq(), " has ", rows.size(), " rows and cannot be split"));
  }
  CutLimits limits;
  limits.max_rows = static_cast<int>((rows.size() + 1) / 2);
  limits.max_bytes = UINT64_MAX;
  return CutBatches(batch, rows, limits);
}

}  // namespace fleetblame::agent
