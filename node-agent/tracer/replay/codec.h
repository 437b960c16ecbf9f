// SPDX-License-Identifier: Apache-2.0
//
// Between the values of the tracer contract and the messages of recording.proto. Decoding trusts
// nothing: a file may come from anywhere.
//
// Threading: pure functions. Errors: DATA_LOSS when a message holds what no tracer can say.
#ifndef NODE_AGENT_TRACER_REPLAY_CODEC_H_
#define NODE_AGENT_TRACER_REPLAY_CODEC_H_

#include "absl/status/statusor.h"
#include "node-agent/tracer/replay/recording.pb.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

recording::v1::Info EncodeInfo(const TracerInfo& info);
TracerInfo DecodeInfo(const recording::v1::Info& message);

recording::v1::Snapshot EncodeSnapshot(const Snapshot& snapshot);
absl::StatusOr<Snapshot> DecodeSnapshot(const recording::v1::Snapshot& message);

void EncodeTraceRecord(const TraceRecord& record, recording::v1::TraceRecord* message);
absl::StatusOr<TraceRecord> DecodeTraceRecord(const recording::v1::TraceRecord& message);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_CODEC_H_
