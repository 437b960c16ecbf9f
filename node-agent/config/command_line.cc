// SPDX-License-Identifier: Apache-2.0
#include "node-agent/config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/config_file.h"
#include "common/device_pattern.h"
#include "common/host_port.h"
#include "common/metrics_address.h"
#include "common/parse_error.h"
#include "common/version.h"
#include "node-agent/config/values.h"
#include "node-agent/host/identity.h"

namespace fleetblame::agent {
namespace {

constexpr char kAbout[] =
    "Watches who makes this host's disk IO happen and why, and reports it to a Fleetblame "
    "aggregator.";

constexpr size_t kMaxHostnameBytes = 255;
constexpr uint64_t kMaxTraceEventsPerSecond = 10'000'000;

constexpr char kFooter[] = R"(
Every long flag is also a key of the configuration file, for example
  aggregator = "aggregator.example:7443"
  devices = ["sd*", "!sda"]
  label = ["role=db", "dc=fra1"]
  window = "10s"

Exit codes
  0  stopped by a signal, end of a replay, or --check found everything in order
  1  a failure while running, or --check found something that is missing
  2  wrong flags or configuration, TLS files that cannot be used
  3  another agent already runs on this host
  4  the tracer cannot start (privileges, kernel, unknown device, recording)
  5  the state directory cannot be used)";

// Flags as they are typed, before they are checked.
struct RawFlags {
  std::vector<std::string> devices;
  std::vector<std::string> labels;
  std::vector<std::string> refuse;
  std::vector<std::string> replay_rewrites;
  std::vector<std::string> replay_modules;
  std::string window = "10s";
  std::string ttl = "120s";
  std::string tracer = "bpf";
  std::string record_max = "1GiB";
  std::string spool_max = "256MiB";
  std::string max_rss = "128MiB";
  std::string log_level = "info";
  std::string log_format = "logfmt";
};

void AddFlags(CLI::App& app, RawFlags& raw, AgentConfig& config) {
  app.add_option("--aggregator", config.aggregator, "Where to report to, HOST:PORT")
      ->group("Aggregator");
  app.add_option("--tls-ca", config.tls.ca,
                 "Authority that signed the aggregator's certificate (PEM); switches TLS on")
      ->group("Aggregator");
  app.add_option("--tls-cert", config.tls.cert, "This agent's certificate (PEM), for mutual TLS")
      ->group("Aggregator");
  app.add_option("--tls-key", config.tls.key, "Private key of --tls-cert (PEM)")
      ->group("Aggregator");
  app.add_option("--tls-server-name", config.tls.server_name,
                 "Name in the aggregator's certificate, when it is not HOST")
      ->group("Aggregator");

  app.add_option("--devices", raw.devices,
                 "Disks to watch: kernel names, globs or MAJ:MIN, separated by commas; ! before "
                 "one takes it away (default: all)")
      ->group("Tracing");
  app.add_option("--window", raw.window, "Length of a window, 1s to 1h")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--tracer", raw.tracer, "bpf, or replay to play a recording")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--replay-file", config.replay.file, "Recording that --tracer replay plays")
      ->group("Tracing");
  app.add_option("--replay-speed", config.replay.speed,
                 "1 = as recorded, 10 = ten times faster, 0 = at once")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--replay-clock", config.replay.clock,
                 "start-now, end-now or recorded: when the recorded windows are said to be")
      ->capture_default_str()
      ->group("Tracing");
  app.add_flag("--replay-loop", config.replay.loop, "Start over at the end of the recording")
      ->group("Tracing");
  app.add_option("--replay-seed", config.replay.seed, "Not 0: number ids as another host would")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--replay-kaslr-shift", config.replay.kaslr_shift, "Added to every kernel address")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--replay-load", config.replay.load_factor, "Every count and byte times this")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--replay-rewrite", raw.replay_rewrites,
                 "REGEX=NAME: symbols that match are called NAME, as another compiler would; may "
                 "be repeated")
      ->group("Tracing");
  app.add_option("--replay-module", raw.replay_modules,
                 "REGEX=MODULE: symbols that match are in MODULE; may be repeated")
      ->group("Tracing");
  app.add_option("--sample-above", config.sample_above,
                 "Direct IOs and reads that each CPU may start, and pages that it may dirty, in a "
                 "second before only one in so many is looked at and the rest is estimated; 0 = "
                 "look at each one")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000))
      ->group("Tracing");
  app.add_option("--tag-waits", config.tag_waits,
                 "Also watch who sleeps for tags of a disk's queue, and which disks hold them")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--infer-tag-waits", config.infer_tag_waits,
                 "Where nothing better exists, by a program that runs at every context switch")
      ->capture_default_str()
      ->group("Tracing");
  app.add_option("--record", config.record,
                 "Also write what the tracer says to this file, for --tracer replay")
      ->group("Tracing");
  app.add_option("--record-max-bytes", raw.record_max, "The recording ends there")
      ->capture_default_str()
      ->group("Tracing");

  app.add_option("--host-id", config.host_id,
                 "Identity of this host (default: a hash of /etc/machine-id)")
      ->group("Identity");
  app.add_option("--hostname", config.hostname, "Name shown to people (default: the system's)")
      ->group("Identity");
  app.add_option("--label", raw.labels, "KEY=VALUE that selectors can match; may be repeated")
      ->group("Identity");

  app.add_option("--state-dir", config.state_dir, "Spool and dictionaries")
      ->capture_default_str()
      ->group("State");
  app.add_option("--spool-max-bytes", raw.spool_max, "Most that the spool takes on disk")
      ->capture_default_str()
      ->group("State");
  app.add_option("--spool-sync", config.spool_sync,
                 "Force each window to disk, so that it survives a power cut")
      ->capture_default_str()
      ->group("State");
  app.add_option("--lock-file", config.lock_file,
                 "Only one agent at a time holds it; change it only to let two pose as two hosts")
      ->capture_default_str()
      ->group("State");

  LimitConfig& limits = config.limits;
  app.add_option("--max-intents", limits.max_intents, "Distinct kernel stacks")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-actors", limits.max_actors, "Distinct command and cgroup pairs")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-acts", limits.max_acts,
                 "Distinct actor and stack pairs that dirtied something")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-pages", limits.max_pages, "Dirty pages whose dirtier is remembered")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-inodes", limits.max_inodes, "Inodes whose last dirtier is remembered")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-rows", limits.max_rows, "Rows of one window in the kernel")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-files", limits.max_files, "Files of one window that are told apart")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-bios", limits.max_bios, "IOs under way")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--ttl", raw.ttl, "How long what is unused is remembered")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-cpu-percent", config.max_cpu_percent,
                 "Shed load when the agent takes more of one core over a minute; 0 = never")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--max-rss", raw.max_rss, "Shed load when the agent holds more memory; 0 = never")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--refuse", raw.refuse,
                 "Directives of the aggregator that are never obeyed: trace, devices, window")
      ->group("Limits");
  app.add_option("--trace-events-per-second", config.trace_events_per_second,
                 "Limit of trace mode when the request names none")
      ->capture_default_str()
      ->group("Limits");

  app.add_option("--metrics-address", config.metrics_address,
                 "Serve Prometheus metrics there, [HOST:]PORT (default: nowhere)")
      ->group("Output");
  app.add_option("--log-level", raw.log_level, "debug, info, warning or error")
      ->capture_default_str()
      ->group("Output");
  app.add_option("--log-format", raw.log_format, "logfmt or json")
      ->capture_default_str()
      ->group("Output");
  app.add_flag("--check", config.check, "Say what this host gives and what is missing, then exit")
      ->configurable(false)
      ->group("Output");
}

absl::Status About(const char* flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

// Sets `*out` from a parser's result.
template <typename T>
absl::Status Assign(const char* flag, absl::StatusOr<T> parsed, T* out) {
  if (!parsed.ok()) return About(flag, parsed.status());
  *out = *std::move(parsed);
  return absl::OkStatus();
}

absl::Status Require(bool good, const std::string& otherwise) {
  return good ? absl::OkStatus() : absl::InvalidArgumentError(otherwise);
}

absl::Status Refuse(const std::vector<std::string>& names, AgentConfig& config) {
  for (const std::string& name : SplitList(names)) {
    if (name == "trace") {
      config.refuse_trace = true;
    } else if (name == "devices") {
      config.refuse_devices = true;
    } else if (name == "window") {
      config.refuse_window = true;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--refuse: \"", name, "\" is none of trace, devices, window"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTracer(const RawFlags& raw, AgentConfig& config) {
  if (raw.tracer == "bpf") {
    config.tracer = TracerKind::kBpf;
  } else if (raw.tracer == "replay") {
    config.tracer = TracerKind::kReplay;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--tracer: \"", raw.tracer, "\" is neither bpf nor replay"));
  }
  const bool replay = config.tracer == TracerKind::kReplay;
  const ReplayConfig& r = config.replay;
  for (const absl::Status& status : {
           Require(!replay || !r.file.empty(), "--tracer replay needs --replay-file"),
           Require(replay || r.file.empty(), "--replay-file needs --tracer replay"),
           Require(r.speed >= 0, "--replay-speed: must not be negative"),
           Require(r.clock == "start-now" || r.clock == "end-now" || r.clock == "recorded",
                   "--replay-clock: must be start-now, end-now or recorded"),
           Require(r.load_factor > 0, "--replay-load: must be at least 1"),
           Require(!replay || !r.loop || r.speed > 0,
                   "--replay-loop needs a --replay-speed above 0"),
       }) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// "REGEX=WORD", cut at the last "=" because a word has none.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseRewrites(
    const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> rewrites;
  for (const std::string& text : texts) {
    const size_t cut = text.rfind('=');
    if (cut == std::string::npos || cut == 0) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not REGEX=WORD"));
    }
    rewrites.emplace_back(text.substr(0, cut), text.substr(cut + 1));
  }
  return rewrites;
}

absl::Status CheckLimits(const AgentConfig& config) {
  const LimitConfig& limits = config.limits;
  struct Bound {
    const char* flag;
    uint32_t value, least, most;
  };
  for (const Bound& bound : {
           Bound{"--max-intents", limits.max_intents, 64, 1u << 20},
           Bound{"--max-actors", limits.max_actors, 64, 1u << 20},
           Bound{"--max-acts", limits.max_acts, 64, 1u << 22},
           Bound{"--max-pages", limits.max_pages, 1024, 1u << 26},
           Bound{"--max-inodes", limits.max_inodes, 64, 1u << 22},
           Bound{"--max-rows", limits.max_rows, 64, 1u << 18},
           Bound{"--max-files", limits.max_files, 0, 1u << 16},
           Bound{"--max-bios", limits.max_bios, 256, 1u << 20},
       }) {
    if (bound.value < bound.least || bound.value > bound.most) {
      return absl::InvalidArgumentError(absl::StrCat(
          bound.flag, ": ", bound.value, " is not between ", bound.least, " and ", bound.most));
    }
  }
  return absl::OkStatus();
}

// Two names of one file: the second lock would never be had.
bool IsStateLock(const AgentConfig& config) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path one = fs::weakly_canonical(config.lock_file, error);
  const fs::path two = fs::weakly_canonical(fs::path(config.state_dir) / "lock", error);
  return !one.empty() && one == two;
}

absl::Status Check(const RawFlags& raw, AgentConfig& config) {
  for (const absl::Status& status : {
           Assign("--window", ParseDurationValue(raw.window), &config.window),
           Assign("--ttl", ParseDurationValue(raw.ttl), &config.limits.ttl),
           Assign("--record-max-bytes", ParseBytesValue(raw.record_max), &config.record_max_bytes),
           Assign("--spool-max-bytes", ParseBytesValue(raw.spool_max), &config.spool_max_bytes),
           Assign("--max-rss", ParseBytesValue(raw.max_rss), &config.max_rss_bytes),
           Assign("--label", ParseLabels(raw.labels), &config.labels),
           Assign("--log-level", ParseLogLevel(raw.log_level), &config.log_level),
           Assign("--log-format", ParseLogFormat(raw.log_format), &config.log_format),
           Assign("--replay-rewrite", ParseRewrites(raw.replay_rewrites),
                  &config.replay.symbol_rewrites),
           Assign("--replay-module", ParseRewrites(raw.replay_modules),
                  &config.replay.module_rewrites),
           Refuse(raw.refuse, config),
           CheckTracer(raw, config),
           CheckLimits(config),
       }) {
    if (!status.ok()) return status;
  }
  config.devices = SplitList(raw.devices);
  for (const std::string& pattern : config.devices) {
    if (auto status = CheckDevicePattern(pattern); !status.ok()) return About("--devices", status);
  }
  if (config.aggregator.empty() && !config.check) {
    return absl::InvalidArgumentError("--aggregator HOST:PORT is missing: where to report to");
  }
  if (!config.aggregator.empty()) {
    if (auto status = CheckHostPort(config.aggregator); !status.ok()) {
      return About("--aggregator", status);
    }
  }
  if (auto status = CheckText(config.hostname, kMaxHostnameBytes); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--hostname ", status.message()));
  }
  if (!config.metrics_address.empty()) {
    if (auto bind = MetricsBindAddress(config.metrics_address); !bind.ok()) {
      return About("--metrics-address", bind.status());
    }
  }
  if (!config.host_id.empty()) {
    if (auto status = CheckHostId(config.host_id); !status.ok()) return About("--host-id", status);
  }
  for (const absl::Status& status : {
           Require(config.window >= absl::Seconds(1) && config.window <= absl::Hours(1),
                   absl::StrCat("--window: ", raw.window, " is not between 1s and 1h")),
           Require(config.limits.ttl >= absl::Seconds(1), "--ttl: must be at least 1s"),
           Require(config.spool_max_bytes >= 1 << 20, "--spool-max-bytes: must be at least 1MiB"),
           Require(config.tls.cert.empty() == config.tls.key.empty(),
                   "--tls-cert and --tls-key go together"),
           Require(config.tls.server_name.empty() || config.tls.enabled(),
                   "--tls-server-name needs TLS; give --tls-ca"),
           Require(!config.state_dir.empty(), "--state-dir: must not be empty"),
           Require(!IsStateLock(config),
                   absl::StrCat("--lock-file: ", config.lock_file,
                                " is the agent's own lock of --state-dir; it keeps a second agent "
                                "off this host, so give a path outside of it")),
           Require(config.max_cpu_percent >= 0, "--max-cpu-percent: must not be negative"),
           // -5 wraps to billions.
           Require(config.trace_events_per_second > 0 &&
                       config.trace_events_per_second <= kMaxTraceEventsPerSecond,
                   absl::StrCat("--trace-events-per-second: must be between 1 and ",
                                kMaxTraceEventsPerSecond)),
       }) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedCommandLine> ParseCommandLine(std::vector<std::string> arguments) {
  ParsedCommandLine parsed;
  RawFlags raw;
  CLI::App app(kAbout, "fleetblame-agent");
  app.footer(kFooter);
  app.set_config("--config", "", "Configuration file (TOML)")->check(CheckConfigFile);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_version_flag("--version", VersionLine("fleetblame-agent"));
  AddFlags(app, raw, parsed.config);
  try {
    std::reverse(arguments.begin(), arguments.end());  // as this overload wants them
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    parsed.print = app.help();
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.print = absl::StrCat(VersionLine("fleetblame-agent"), "\n");
    return parsed;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(ParseErrorSentence(error.what()));
  }
  if (auto status = Check(raw, parsed.config); !status.ok()) return status;
  return parsed;
}

}  // namespace fleetblame::agent
