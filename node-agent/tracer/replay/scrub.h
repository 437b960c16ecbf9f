// SPDX-License-Identifier: Apache-2.0
//
// Copies a recording without the names that it holds, so that it can be shown to strangers:
// commands become "command1", cgroups "/cgroup1", files "/file1", the same name always the same
// way. Kernel functions, device names and all figures stay.
//
// Threading: one thread. Errors: those of CreateReplayTracer and CreateRecorder.
#ifndef NODE_AGENT_TRACER_REPLAY_SCRUB_H_
#define NODE_AGENT_TRACER_REPLAY_SCRUB_H_

#include <string>

#include "absl/status/status.h"
#include "node-agent/tracer/replay/replay_tracer.h"

namespace fleetblame::agent {

// `options` may change the copy as they change a replay; speed must be 0 and loop false.
absl::Status ScrubRecording(const std::string& from, const std::string& to,
                            const ReplayOptions& options = {});

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_SCRUB_H_
