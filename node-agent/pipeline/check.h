// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame-agent --check`: a checklist of what this host gives and what is missing, without
// attaching anything.
//
// Threading: one thread.
#ifndef NODE_AGENT_PIPELINE_CHECK_H_
#define NODE_AGENT_PIPELINE_CHECK_H_

#include <ostream>

#include "node-agent/config/config.h"

namespace fleetblame::agent {

// Prints the list; false when something is missing without which the agent cannot do its work.
bool RunCheck(const AgentConfig& config, std::ostream& out);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_PIPELINE_CHECK_H_
