// SPDX-License-Identifier: Apache-2.0
//
// From the bytes of a Batch to something that the store may take: unpacked, validated and with sane
// times. Works on what a stranger sent; memory is bounded by IngestLimits whatever the bytes claim.
//
// Threading: functions are pure but for a decompressor of each thread's own.
#ifndef AGGREGATOR_INGEST_BATCH_DECODER_H_
#define AGGREGATOR_INGEST_BATCH_DECODER_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/ingest/limits.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// Fills `rows` from `batch->rows`, which is emptied, and checks everything else. Gaps with
// senseless times are brought into sane bounds; the window of a batch without data too, so that the
// report of a refused batch is never refused itself. INVALID_ARGUMENT: can never be taken.
// RESOURCE_EXHAUSTED: too much for one batch; split it.
absl::Status DecodeBatch(const IngestLimits& limits, absl::Time now, v1::Batch* batch,
                         v1::RowBlock* rows);

// Sequence number of the Batch in a serialized AgentMessage that does not parse as a whole (for
// instance since a text is not UTF-8); nothing when it cannot be made out.
std::optional<uint64_t> PeekBatchSeq(std::string_view agent_message);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_BATCH_DECODER_H_
