// SPDX-License-Identifier: Apache-2.0
//
// Snapshots and trace records as text, every field of them, one line an item: for comparing two of
// them in tests and for reading a recording.
//
// Threading: pure functions.
#ifndef NODE_AGENT_TRACER_REPLAY_SNAPSHOT_TEXT_H_
#define NODE_AGENT_TRACER_REPLAY_SNAPSHOT_TEXT_H_

#include <string>

#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

std::string SnapshotText(const Snapshot& snapshot);
std::string TraceRecordText(const TraceRecord& record);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_SNAPSHOT_TEXT_H_
