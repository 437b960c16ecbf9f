// SPDX-License-Identifier: Apache-2.0
//
// Everything that can be set on the agent. docs/agent.md is the reference for people.
//
// Plain values.
#ifndef NODE_AGENT_CONFIG_CONFIG_H_
#define NODE_AGENT_CONFIG_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/log_format.h"

namespace fleetblame::agent {

enum class TracerKind { kBpf, kReplay };

struct ReplayConfig {
  std::string file;
  double speed = 1;  // 0 = as fast as it can be read
  std::string clock = "start-now";
  bool loop = false;
  uint64_t seed = 0;
  int64_t kaslr_shift = 0;
  uint32_t load_factor = 1;
  // RE2 and what symbols that match are renamed to, or the module they are said to be in.
  std::vector<std::pair<std::string, std::string>> symbol_rewrites;
  std::vector<std::pair<std::string, std::string>> module_rewrites;
};

struct TlsConfig {
  std::string ca;    // PEM file of the authority that signed the aggregator's certificate
  std::string cert;  // PEM files of the agent's own certificate; both or none
  std::string key;
  std::string server_name;  // when the certificate names another host than `aggregator`
  bool enabled() const { return !ca.empty() || !cert.empty(); }
};

struct LimitConfig {
  uint32_t max_intents = 16384;
  uint32_t max_actors = 65536;
  uint32_t max_acts = 65536;
  uint32_t max_pages = 2097152;
  uint32_t max_inodes = 32768;
  uint32_t max_rows = 8192;
  uint32_t max_files = 256;
  uint32_t max_bios = 32768;
  absl::Duration ttl = absl::Seconds(120);
};

struct AgentConfig {
  std::string aggregator;  // host:port
  TlsConfig tls;

  std::vector<std::string> devices;
  absl::Duration window = absl::Seconds(10);
  TracerKind tracer = TracerKind::kBpf;
  ReplayConfig replay;
  uint32_t sample_above = 10000;  // IOs per second and CPU; 0 = never
  bool tag_waits = true;
  bool infer_tag_waits = false;
  std::string record;
  uint64_t record_max_bytes = uint64_t{1} << 30;
  LimitConfig limits;

  std::string host_id;   // empty = derived from the machine id
  std::string hostname;  // empty = the system's
  std::map<std::string, std::string> labels;

  std::string state_dir = "/var/lib/fleetblame/agent";
  std::string lock_file = "/run/fleetblame/agent.lock";
  uint64_t spool_max_bytes = 256u << 20;
  bool spool_sync = true;

  std::string metrics_address;  // empty = none
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;

  double max_cpu_percent = 10;  // of one core, over a minute
  uint64_t max_rss_bytes = 128u << 20;
  bool refuse_trace = false;  // directives that are never obeyed
  bool refuse_devices = false;
  bool refuse_window = false;
  uint64_t trace_events_per_second = 2000;  // when the directive does not say

  bool check = false;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_CONFIG_CONFIG_H_
