// SPDX-License-Identifier: Apache-2.0
//
// A whole fleet on one machine: one aggregator and any number of agents that pose as hosts, all of
// them the real programs, on loopback ports and in a directory of their own.
//
// Not thread-safe.
#ifndef TESTS_E2E_FLEET_H_
#define TESTS_E2E_FLEET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/daemon.h"

namespace fleetblame::testing {

struct CliResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class Fleet {
 public:
  // Makes a directory; removed with everything in it when the object goes away.
  Fleet();
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  const std::string& directory() const { return directory_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string data_dir() const { return directory_ + "/store"; }
  std::string state_dir(const std::string& host) const { return directory_ + "/agent-" + host; }
  std::string lock_file(const std::string& host) const { return state_dir(host) + "/host.lock"; }

  // Starts on the same port and store each time and waits until it serves.
  absl::StatusOr<std::unique_ptr<Daemon>> StartAggregator(std::vector<std::string> flags = {});
  // Starts with the state directory and lock of that host. Does not wait.
  absl::StatusOr<std::unique_ptr<Daemon>> StartAgent(const std::string& host,
                                                     std::vector<std::string> flags);

  // Runs the command line against this aggregator.
  CliResult Cli(std::vector<std::string> arguments) const;
  // The same with --output json; null when it failed (and the test is then marked failed).
  nlohmann::json CliJson(std::vector<std::string> arguments) const;

  // Bytes of all operations that the aggregator has stored of one host (all hosts when empty).
  uint64_t StoredBytes(const std::string& host = "") const;
  // Waits until StoredBytes says so; returns the last value seen.
  uint64_t WaitForStoredBytes(uint64_t bytes, absl::Duration timeout) const;

 private:
  std::string directory_;
  int port_;
};

// Path of a program that the test was built with ("node-agent/fleetblame-agent").
std::string ProgramPath(const std::string& runfile);

}  // namespace fleetblame::testing

#endif  // TESTS_E2E_FLEET_H_
