// SPDX-License-Identifier: Apache-2.0
//
// Merges spooled batches of neighbouring windows: half as many windows, twice as long, the same
// sums. What the spool does to make room before it gives anything up.
//
// Threading: pure functions.
#ifndef NODE_AGENT_COMPACT_COARSEN_H_
#define NODE_AGENT_COMPACT_COARSEN_H_

#include <vector>

#include "node-agent/compact/batch_cutter.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::agent {

// `batches` in order of their sequence. Windows are merged in pairs when they touch, are of one
// boot and use one dictionary; others stay as they are. Never returns more batches than it got;
// returns them unchanged when one of them is not readable.
std::vector<v1::Batch> CoarsenBatches(std::vector<v1::Batch> batches, const CutLimits& limits);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_COMPACT_COARSEN_H_
