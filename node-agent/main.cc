// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <vector>

#include "common/grpc_log.h"
#include "common/log.h"
#include "node-agent/config/command_line.h"
#include "node-agent/pipeline/agent.h"
#include "node-agent/pipeline/check.h"
#include "node-agent/pipeline/exit_codes.h"
#include "node-agent/pipeline/wake_up.h"

namespace fleetblame::agent {
namespace {

int Fail(const absl::Status& status, int exit_code) {
  std::cerr << "fleetblame-agent: " << status.message() << "\n";
  return exit_code;
}

int Main(std::vector<std::string> arguments) {
  auto parsed = ParseCommandLine(std::move(arguments));
  if (!parsed.ok()) {
    Fail(parsed.status(), kExitUsage);
    std::cerr << "Run fleetblame-agent --help for all flags.\n";
    return kExitUsage;
  }
  if (parsed->print) {
    std::cout << *parsed->print;
    return kExitOk;
  }
  const AgentConfig& config = parsed->config;
  InitLogging(
      {.level = config.check ? LogLevel::kError : config.log_level, .format = config.log_format});
  RouteGrpcLog();
  if (config.check) return RunCheck(config, std::cout) ? kExitOk : kExitFailure;

  // Before the first thread: all of them inherit the blocked signals.
  auto wake_up = WakeUp::Block();
  if (!wake_up.ok()) return Fail(wake_up.status(), kExitFailure);
  int exit_code = kExitFailure;
  auto agent = Agent::Create(config, wake_up->get(), &exit_code);
  if (!agent.ok()) return Fail(agent.status(), exit_code);
  exit_code = (*agent)->Run();
  agent->reset();
  FlushLog();
  return exit_code;
}

}  // namespace
}  // namespace fleetblame::agent

int main(int argc, char** argv) {
  return fleetblame::agent::Main(std::vector<std::string>(argv + 1, argv + argc));
}
