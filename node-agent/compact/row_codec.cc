// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/row_codec.h"

#include <zstd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/row_block.h"

namespace fleetblame::agent {
namespace {

// Above it the gain on columns of varints is a few percent for several times the work.
constexpr int kZstdLevel = 3;
// Larger than any block that the agent makes.
constexpr uint64_t kMaxPlainBytes = 64u << 20;

void Sort(std::vector<uint32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (!numbers.empty() && numbers.front() == 0) numbers.erase(numbers.begin());
}

}  // namespace

void EncodeRows(const v1::RowBlock& block, int row_count, v1::Batch* batch) {
  batch->clear_rows();
  batch->set_encoding(v1::Batch::ENCODING_PLAIN);
  batch->set_row_count(static_cast<uint32_t>(row_count));
  batch->set_rows_plain_bytes(0);
  if (row_count == 0) return;
  std::string plain = block.SerializeAsString();
  batch->set_rows_plain_bytes(plain.size());
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  const size_t size =
      ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), kZstdLevel);
  if (!ZSTD_isError(size) && size < plain.size()) {
    packed.resize(size);
    batch->set_encoding(v1::Batch::ENCODING_ZSTD);
    batch->set_rows(std::move(packed));
  } else {
    batch->set_rows(std::move(plain));
  }
}

absl::StatusOr<v1::RowBlock> DecodeRows(const v1::Batch& batch) {
  v1::RowBlock block;
  if (batch.row_count() == 0) return block;
  bool parsed = false;
  if (batch.encoding() == v1::Batch::ENCODING_ZSTD) {
    if (batch.rows_plain_bytes() > kMaxPlainBytes) {
      return absl::DataLossError(absl::StrCat("batch ", batch.seq(), ": rows are too large"));
    }
    std::string plain(batch.rows_plain_bytes(), '\0');
    const size_t size =
        ZSTD_decompress(plain.data(), plain.size(), batch.rows().data(), batch.rows().size());
    parsed = !ZSTD_isError(size) && size == plain.size() && block.ParseFromString(plain);
  } else {
    parsed = block.ParseFromString(batch.rows());
  }
  if (!parsed) {
    return absl::DataLossError(absl::StrCat("batch ", batch.seq(), ": rows are not readable"));
  }
  if (auto status = ValidateRowBlock(block, batch.row_count()); !status.ok()) {
    return absl::DataLossError(absl::StrCat("batch ", batch.seq(), ": ", status.message()));
  }
  return block;
}

absl::StatusOr<DictionaryRefs> CollectRefs(const v1::Batch& batch) {
  auto block = DecodeRows(batch);
  if (!block.ok()) return block.status();
  DictionaryRefs refs;
  refs.dictionary_id = batch.dictionary_id();
  auto& numbers = refs.numbers;
  numbers[0].assign(block->intents().begin(), block->intents().end());
  numbers[1].assign(block->actors().begin(), block->actors().end());
  numbers[2].assign(block->devices().begin(), block->devices().end());
  numbers[3].assign(block->files().begin(), block->files().end());
  for (const auto& sample : batch.coverage()) numbers[2].push_back(sample.device());
  for (const auto& row : batch.tag_waits().rows()) {
    numbers[0].push_back(row.intent());
    numbers[1].push_back(row.actor());
    numbers[2].push_back(row.device());
  }
  for (const auto& holder : batch.tag_waits().holders()) {
    numbers[2].push_back(holder.waiter_device());
    numbers[2].push_back(holder.holder_device());
  }
  for (const auto& disk : batch.tag_waits().disks()) numbers[2].push_back(disk.device());
  for (auto& list : numbers) Sort(list);
  return refs;
}

}  // namespace fleetblame::agent
