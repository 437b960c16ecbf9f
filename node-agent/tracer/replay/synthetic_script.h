// SPDX-License-Identifier: Apache-2.0
//
// A script for ScriptedTracer that keeps the tracer contract: windows with rows, books, definitions
// and trace records of an invented host with ext4 and xfs on two disks. The same seed gives the
// same script on every machine.
//
// Threading: pure function.
#ifndef NODE_AGENT_TRACER_REPLAY_SYNTHETIC_SCRIPT_H_
#define NODE_AGENT_TRACER_REPLAY_SYNTHETIC_SCRIPT_H_

#include <cstdint>

#include "node-agent/tracer/replay/scripted_tracer.h"

namespace fleetblame::agent {

struct SyntheticOptions {
  uint64_t seed = 1;
  int windows = 5;
  int rows_per_window = 40;
  int trace_records = 100;
  uint64_t window_ns = 10'000'000'000;
};

TracerScript MakeSyntheticScript(const SyntheticOptions& options = {});

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_SYNTHETIC_SCRIPT_H_
