// SPDX-License-Identifier: Apache-2.0
//
// The line of --check on tag waits: which source this kernel gives and what that costs.
//
// Threading: one thread. Loads the programs for a moment, and attaches nothing for good.
#ifndef NODE_AGENT_TRACER_TAGWAIT_TAG_CHECK_H_
#define NODE_AGENT_TRACER_TAGWAIT_TAG_CHECK_H_

#include <vector>

#include "node-agent/tracer/bpf/kernel_check.h"

namespace fleetblame::agent {

// `lines` and one more. Asks the kernel only when it takes the tracer's own programs.
std::vector<CapabilityLine> WithTagWaits(std::vector<CapabilityLine> lines, bool wanted,
                                         bool infer);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_TAGWAIT_TAG_CHECK_H_
