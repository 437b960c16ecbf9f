// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/batch_decoder.h"

#include <zstd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "aggregator/ingest/definitions_check.h"
#include "aggregator/ingest/tag_waits_check.h"
#include "common/absl_view.h"
#include "common/row_block.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace fleetblame::aggregator {
namespace {

constexpr int64_t kYear2000Seconds = 946'684'800;
constexpr size_t kMaxNameBytes = 256;

// Above it a buffer is given back instead of being kept for the next batch.
constexpr size_t kKeptScratchBytes = 256 << 10;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status Unpack(const IngestLimits& limits, const v1::Batch& batch, std::string* plain) {
  if (batch.rows_plain_bytes() > limits.max_rows_plain_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("rows of ", batch.rows_plain_bytes(),
                                                     " bytes unpacked; at most ",
                                                     limits.max_rows_plain_bytes));
  }
  struct Context {
    ZSTD_DCtx* zstd = ZSTD_createDCtx();
    ~Context() { ZSTD_freeDCtx(zstd); }
  };
  thread_local Context context;
  if (context.zstd == nullptr) return absl::ResourceExhaustedError("no memory to decompress");
  // The output can never outgrow what was promised, whatever the frame says of itself.
  plain->resize(batch.rows_plain_bytes());
  size_t size = ZSTD_decompressDCtx(context.zstd, plain->data(), plain->size(), batch.rows().data(),
                                    batch.rows().size());
  if (ZSTD_isError(size)) {
    return Bad(absl::StrCat("rows do not decompress into ", batch.rows_plain_bytes(),
                            " bytes: ", ZSTD_getErrorName(size)));
  }
  if (size != batch.rows_plain_bytes()) {
    return Bad(absl::StrCat("rows decompress into ", size, " bytes instead of ",
                            batch.rows_plain_bytes()));
  }
  return absl::OkStatus();
}

absl::Status ParseRows(const IngestLimits& limits, const v1::Batch& batch, v1::RowBlock* rows) {
  rows->Clear();
  switch (batch.encoding()) {
    case v1::Batch::ENCODING_PLAIN:
      if (batch.rows().size() > limits.max_rows_plain_bytes) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "rows of ", batch.rows().size(), " bytes; at most ", limits.max_rows_plain_bytes));
      }
      if (!rows->ParseFromString(batch.rows())) return Bad("rows are not a RowBlock");
      return absl::OkStatus();
    case v1::Batch::ENCODING_ZSTD: {
      // An empty block takes no bytes at all, with or without a frame around.
      if (batch.rows().empty() && batch.rows_plain_bytes() == 0) return absl::OkStatus();
      thread_local std::string plain;
      absl::Status status = Unpack(limits, batch, &plain);
      if (status.ok() && !rows->ParseFromString(plain)) status = Bad("rows are not a RowBlock");
      if (plain.capacity() > kKeptScratchBytes) std::string().swap(plain);
      return status;
    }
    default:
      return Bad(absl::StrCat("unknown encoding ", static_cast<int>(batch.encoding())));
  }
}

// Tables may not be larger than their rows can need: a lone row with a million table entries is
// nobody's honest work.
absl::Status CheckTables(const v1::RowBlock& rows) {
  int64_t count = rows.op_confidence_size();
  if (rows.intents_size() > 2 * count + 1 || rows.actors_size() > 2 * count + 1 ||
      rows.devices_size() > count + 1 || rows.files_size() > count + 1) {
    return Bad("tables are larger than the rows can refer to");
  }
  return absl::OkStatus();
}

struct Span {
  absl::Time start;
  absl::Time end;
};

// Nothing when the sum leaves the range of a 64-bit nanosecond count.
std::optional<Span> RealTime(const v1::Window& window) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (window.start_boot_ns() > kMax || window.end_boot_ns() > kMax) return std::nullopt;
  int64_t start = 0, end = 0;
  if (__builtin_add_overflow(static_cast<int64_t>(window.start_boot_ns()),
                             window.realtime_offset_ns(), &start) ||
      __builtin_add_overflow(static_cast<int64_t>(window.end_boot_ns()),
                             window.realtime_offset_ns(), &end)) {
    return std::nullopt;
  }
  return Span{absl::FromUnixNanos(start), absl::FromUnixNanos(end)};
}

absl::Status CheckWindow(const IngestLimits& limits, absl::Time now, const v1::Window& window) {
  if (window.boot_id().size() > kMaxNameBytes) return Bad("window: boot_id too long");
  if (window.end_boot_ns() <= window.start_boot_ns()) return Bad("window: ends before it begins");
  std::optional<Span> span = RealTime(window);
  if (!span || span->start < absl::FromUnixSeconds(kYear2000Seconds)) {
    return Bad("window: lies before the year 2000; set the clock of that host");
  }
  if (span->end > now + limits.max_future) {
    return Bad(absl::StrCat("window: lies ", absl::FormatDuration(span->end - now),
                            " in the future; set the clock of that host"));
  }
  if (span->end - span->start > limits.max_window) return Bad("window: too long");
  if (window.has_stack_sampling() &&
      !(window.stack_sampling() >= 0 && window.stack_sampling() <= 1)) {
    return Bad("window: stack_sampling must be between 0 and 1");
  }
  return absl::OkStatus();
}

// A window of one nanosecond at `now`, for a batch that only reports.
void PlaceAt(absl::Time now, v1::Window* window) {
  window->Clear();
  window->set_start_boot_ns(absl::ToUnixNanos(now) - 1);
  window->set_end_boot_ns(absl::ToUnixNanos(now));
}

void BoundGap(const IngestLimits& limits, absl::Time now, v1::Gap* gap) {
  uint64_t first = uint64_t{kYear2000Seconds} * 1'000'000'000;
  uint64_t last = absl::ToUnixNanos(now + limits.max_future);
  uint64_t start = std::clamp<uint64_t>(gap->start_unix_ns(), first, last - 1);
  gap->set_start_unix_ns(start);
  gap->set_end_unix_ns(std::clamp<uint64_t>(gap->end_unix_ns(), start + 1, last));
}

absl::Status CheckCoverage(const v1::Batch& batch) {
  for (const v1::CoverageSample& sample : batch.coverage()) {
    if (sample.device() == 0) return Bad("coverage: a sample names no device");
    if (sample.direction() != v1::OPERATION_READ && sample.direction() != v1::OPERATION_WRITE &&
        sample.direction() != v1::OPERATION_DISCARD) {
      return Bad("coverage: a direction must be READ, WRITE or DISCARD");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReports(const IngestLimits& limits, const v1::Batch& batch) {
  if (static_cast<uint64_t>(batch.coverage_size()) > limits.max_coverage_per_batch ||
      static_cast<uint64_t>(batch.losses_size()) > limits.max_losses_per_batch ||
      static_cast<uint64_t>(batch.gaps_size()) > limits.max_gaps_per_batch) {
    return absl::ResourceExhaustedError("too many coverage samples, losses or gaps in one batch");
  }
  for (const v1::LossCounter& loss : batch.losses()) {
    if (loss.name().empty() || loss.name().size() > kMaxNameBytes) {
      return Bad(absl::StrCat("loss counter: its name has ", loss.name().size(), " bytes; 1 to ",
                              kMaxNameBytes));
    }
  }
  for (const v1::Gap& gap : batch.gaps()) {
    if (gap.cause().size() > kMaxNameBytes) return Bad("gap: cause too long");
  }
  return CheckCoverage(batch);
}

}  // namespace

absl::Status DecodeBatch(const IngestLimits& limits, absl::Time now, v1::Batch* batch,
                         v1::RowBlock* rows) {
  if (batch->seq() == 0) return Bad("sequence numbers begin with 1");
  if (batch->row_count() > limits.max_rows_per_batch) {
    return absl::ResourceExhaustedError(
        absl::StrCat(batch->row_count(), " rows; at most ", limits.max_rows_per_batch));
  }
  if (absl::Status status = ParseRows(limits, *batch, rows); !status.ok()) return status;
  // From here on the packed form is dead weight. Small ones keep their buffer for the next batch.
  if (batch->rows().size() > kKeptScratchBytes) {
    std::string().swap(*batch->mutable_rows());
  } else {
    batch->clear_rows();
  }
  if (rows->op_confidence_size() != static_cast<int64_t>(batch->row_count())) {
    return Bad(absl::StrCat("row_count is ", batch->row_count(), " but the block has ",
                            rows->op_confidence_size(), " rows"));
  }
  absl::Status status = ValidateRowBlock(*rows, limits.max_rows_per_batch);
  if (status.ok()) status = CheckTables(*rows);
  if (status.ok()) status = CheckReports(limits, *batch);
  if (status.ok() && batch->has_tag_waits()) status = CheckTagWaits(batch->mutable_tag_waits());
  if (status.ok())
    status = CheckDefinitions(batch->definitions(), limits.max_definitions_per_message);
  if (!status.ok()) return status;

  const bool has_data = batch->row_count() != 0 || batch->coverage_size() != 0 ||
                        NamesDefinitions(batch->tag_waits());
  if (batch->dictionary_id() == 0 && has_data) return Bad("dictionary_id is missing");
  if (batch->definitions().dictionary_id() != 0 &&
      batch->definitions().dictionary_id() != batch->dictionary_id()) {
    return Bad("definitions are of another dictionary than the batch");
  }
  status = CheckWindow(limits, now, batch->window());
  if (!status.ok()) {
    if (has_data) return status;
    PlaceAt(now, batch->mutable_window());
  }
  for (v1::Gap& gap : *batch->mutable_gaps()) BoundGap(limits, now, &gap);
  return absl::OkStatus();
}

std::optional<uint64_t> PeekBatchSeq(std::string_view agent_message) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream in(
      reinterpret_cast<const uint8_t*>(agent_message.data()),
      static_cast<int>(std::min<size_t>(agent_message.size(), INT32_MAX)));
  const uint32_t batch_tag = WireFormatLite::MakeTag(v1::AgentMessage::kBatchFieldNumber,
                                                     WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  const uint32_t seq_tag =
      WireFormatLite::MakeTag(v1::Batch::kSeqFieldNumber, WireFormatLite::WIRETYPE_VARINT);
  uint32_t length = 0;
  if (in.ReadTag() != batch_tag || !in.ReadVarint32(&length)) return std::nullopt;
  // Serializers write fields in order of number, and seq is the first.
  uint64_t seq = 0;
  if (in.ReadTag() != seq_tag || !in.ReadVarint64(&seq) || seq == 0) return std::nullopt;
  return seq;
}

}  // namespace fleetblame::aggregator
