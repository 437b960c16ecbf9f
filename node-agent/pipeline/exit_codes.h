// SPDX-License-Identifier: Apache-2.0
//
// How the agent ends; documented in --help and docs/agent.md.
#ifndef NODE_AGENT_PIPELINE_EXIT_CODES_H_
#define NODE_AGENT_PIPELINE_EXIT_CODES_H_

namespace fleetblame::agent {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitAlreadyRunning = 3;
inline constexpr int kExitTracer = 4;
inline constexpr int kExitState = 5;

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_PIPELINE_EXIT_CODES_H_
