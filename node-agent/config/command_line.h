// SPDX-License-Identifier: Apache-2.0
//
// Reads flags and the configuration file into an AgentConfig. A flag beats the file; both beat the
// defaults; every key of the file is the name of a flag.
//
// Threading: one thread. Errors: INVALID_ARGUMENT with one sentence that names flag or key.
#ifndef NODE_AGENT_CONFIG_COMMAND_LINE_H_
#define NODE_AGENT_CONFIG_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/config/config.h"

namespace fleetblame::agent {

struct ParsedCommandLine {
  // Set when there is only something to print (--help, --version).
  std::optional<std::string> print;
  AgentConfig config;
};

// `arguments` without the program's name.
absl::StatusOr<ParsedCommandLine> ParseCommandLine(std::vector<std::string> arguments);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_CONFIG_COMMAND_LINE_H_
