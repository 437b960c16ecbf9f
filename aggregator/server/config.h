// SPDX-License-Identifier: Apache-2.0
//
// What a person may set: flags, and the same names in a TOML file. docs/aggregator.md is the
// reference.
//
// Threading: plain values and functions.
#ifndef AGGREGATOR_SERVER_CONFIG_H_
#define AGGREGATOR_SERVER_CONFIG_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/store/store.h"
#include "common/log_format.h"

namespace fleetblame::aggregator {

struct ServerConfig {
  std::string listen = "127.0.0.1:7443";
  std::string data_dir = "/var/lib/fleetblame/aggregator";
  std::string metrics_address = "127.0.0.1:7444";  // empty = none

  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  bool tls_bind_hosts = true;  // with tls_client_ca
  bool insecure = false;

  std::array<uint64_t, kLevels> retention_ns = {};  // 0 = the store's own
  uint64_t max_message_bytes = uint64_t{4} << 20;
  uint64_t memory_limit_bytes = uint64_t{1} << 30;
  uint64_t max_agents = 20'000;
  uint64_t stream_lifetime_ns = 3'600'000'000'000;

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;

  bool check = false;   // say whether it would start, and end
  bool repair = false;  // salvage a damaged store, and end
};

// What the command line asked for. `exit_code` is set when there is nothing to run: after --help
// and
// --version (0), and for a mistake (kExitUsage); what is to be said was printed then.
struct CommandLine {
  ServerConfig config;
  int exit_code = -1;
};
CommandLine ParseCommandLine(int argc, const char* const* argv);

// INVALID_ARGUMENT with the way out for settings that do not go together.
absl::Status CheckConfig(const ServerConfig& config);

// "90s", "36h", "7d", "5y": a whole number and one of s, m, h, d, w, y.
absl::StatusOr<uint64_t> ParseDurationNs(std::string_view text);
// "4194304", "4MiB", "1g": powers of 1024.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// Whether only this machine can reach the address (127/8, ::1, localhost, unix:).
bool IsLoopback(std::string_view address);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_SERVER_CONFIG_H_
