// SPDX-License-Identifier: Apache-2.0
#include "aggregator/server/config.h"

#include <charconv>
#include <iostream>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/server/exit_code.h"
#include "common/absl_view.h"
#include "common/config_file.h"
#include "common/host_port.h"
#include "common/metrics_address.h"
#include "common/parse_error.h"
#include "common/version.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMinMessageBytes = 64 << 10;
constexpr uint64_t kMaxMessageBytes = 64 << 20;
constexpr uint64_t kMinMemoryBytes = 256 << 20;
constexpr uint64_t kMaxAgents = 1'000'000;

constexpr char kFooter[] = R"(
Every long flag is also a key of the configuration file, for example
  listen = "0.0.0.0:7443"

Exit codes
  0  stopped by a signal, or --check found nothing wrong
  1  anything else
  2  wrong flags or configuration
  3  the store cannot be opened
  4  cannot listen
  5  certificate, key or authority cannot be used)";

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// A whole number, then a unit out of `units`.
absl::StatusOr<uint64_t> ParseWithUnit(std::string_view text, std::initializer_list<Unit> units,
                                       std::string_view example) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit =
      absl::AsciiStrToLower(ToAbsl(text.substr(static_cast<size_t>(end - text.data()))));
  for (const Unit& known : units) {
    if (error != std::errc() || unit != known.name) continue;
    if (number > std::numeric_limits<uint64_t>::max() / known.factor) break;
    return number * known.factor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToAbsl(text), "\" is not understood; write ", ToAbsl(example)));
}

// An option whose text is turned into a value by `parse`; the message of its error reaches the
// user.
template <typename T, typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, T* value, Parse parse,
                       const std::string& help) {
  return app.add_option_function<std::string>(
      name,
      [value, parse, name](const std::string& text) {
        absl::StatusOr<T> parsed = parse(text);
        if (!parsed.ok()) {
          throw CLI::ValidationError(name, std::string(parsed.status().message()));
        }
        *value = *parsed;
      },
      help);
}

void AddOptions(CLI::App& app, ServerConfig& config) {
  app.add_option("--listen", config.listen, "HOST:PORT for agents and queries")
      ->capture_default_str();
  app.add_option("--data-dir", config.data_dir, "directory of the store")->capture_default_str();
  app.add_option("--metrics-address", config.metrics_address, "HOST:PORT of /metrics; empty = none")
      ->capture_default_str();

  app.add_option("--tls-cert", config.tls_cert, "certificate chain of this server (PEM)");
  app.add_option("--tls-key", config.tls_key, "its private key (PEM)");
  app.add_option("--tls-client-ca", config.tls_client_ca,
                 "demand client certificates that this CA signed (PEM)");
  app.add_option("--tls-bind-hosts", config.tls_bind_hosts,
                 "with --tls-client-ca: an agent's certificate must name its host")
      ->capture_default_str();
  app.add_flag("--insecure", config.insecure,
               "allow a listen address without TLS that others can reach");

  const char* levels[kLevels] = {"raw", "1m", "10m", "1h", "6h", "1d"};
  const char* defaults[kLevels] = {"1d", "1w", "5w", "400d", "400d", "5y"};
  for (int level = 0; level < kLevels; ++level) {
    const std::string what =
        level == 0 ? "windows as agents sent them" : absl::StrCat("sums over ", levels[level]);
    AddParsed(app, absl::StrCat("--retention-", levels[level]), &config.retention_ns[level],
              ParseDurationNs,
              absl::StrCat("how long ", what, " stay [", defaults[level],
                           level == 0 ? "]" : "]; not shorter than the one before"));
  }
  AddParsed(app, "--max-message-bytes", &config.max_message_bytes, ParseBytes,
            "largest message of an agent [4MiB]");
  AddParsed(app, "--memory-limit", &config.memory_limit_bytes, ParseBytes,
            "what caches and buffers share [1GiB]");
  app.add_option("--max-agents", config.max_agents, "agents connected at once")
      ->capture_default_str();
  AddParsed(app, "--stream-lifetime", &config.stream_lifetime_ns, ParseDurationNs,
            "agents are asked to connect again after about this long [1h]");

  AddParsed(app, "--log-level", &config.log_level, ParseLogLevel,
            "debug, info, warning or error [info]");
  AddParsed(app, "--log-format", &config.log_format, ParseLogFormat, "logfmt or json [logfmt]");
  app.add_flag("--check", config.check, "say whether the aggregator would start, and end");
  app.add_flag("--repair", config.repair, "salvage a damaged store, and end")->configurable(false);
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine result;
  CLI::App app("Collects what the agents of a fleet record, and answers who made the IO happen.",
               "fleetblame-aggregator");
  app.set_version_flag("--version", VersionLine("fleetblame-aggregator"));
  app.set_config("--config", "", "TOML file; keys are the flags without dashes in front")
      ->check(CheckConfigFile);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_formatter()->column_width(34);
  app.footer(kFooter);
  AddOptions(app, result.config);
  try {
    app.parse(argc, argv);
    absl::Status status = CheckConfig(result.config);
    if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with code 0 to this library.
    if (error.get_exit_code() == 0) {
      app.exit(error);
      result.exit_code = kExitOk;
      return result;
    }
    std::cerr << "fleetblame-aggregator: " << ParseErrorSentence(error.what())
              << "\nRun fleetblame-aggregator --help for all flags.\n";
    result.exit_code = kExitUsage;
  }
  return result;
}

absl::Status CheckConfig(const ServerConfig& config) {
  if (config.listen.empty()) return absl::InvalidArgumentError("--listen is empty");
  if (!absl::StartsWith(config.listen, "unix:")) {
    absl::Status status = CheckHostPort(config.listen, PortZero::kAllowed);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--listen: ", status.message()));
    }
  }
  if (!config.metrics_address.empty()) {
    absl::StatusOr<std::string> bind = MetricsBindAddress(config.metrics_address);
    if (!bind.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--metrics-address: ", bind.status().message()));
    }
  }
  if (config.data_dir.empty()) return absl::InvalidArgumentError("--data-dir is empty");
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together: give both");
  }
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
  }
  if (config.tls_cert.empty() && !config.insecure && !IsLoopback(config.listen)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "others can reach ", config.listen,
        " and nothing protects it; give --tls-cert and --tls-key (deploy/tls/make-certs makes "
        "them), listen on 127.0.0.1, or say --insecure"));
  }
  if (config.max_message_bytes < kMinMessageBytes || config.max_message_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError("--max-message-bytes must be between 64KiB and 64MiB");
  }
  if (config.memory_limit_bytes < kMinMemoryBytes) {
    return absl::InvalidArgumentError("--memory-limit must be at least 256MiB");
  }
  // -5 wraps to a number that no machine has room for.
  if (config.max_agents == 0 || config.max_agents > kMaxAgents) {
    return absl::InvalidArgumentError("--max-agents must be between 1 and 1000000");
  }
  if (config.stream_lifetime_ns < 10 * kSecondNs) {
    return absl::InvalidArgumentError("--stream-lifetime must be at least 10s");
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ParseDurationNs(std::string_view text) {
  constexpr uint64_t kDay = 86'400 * kSecondNs;
  return ParseWithUnit(text,
                       {{"s", kSecondNs},
                        {"m", 60 * kSecondNs},
                        {"h", 3600 * kSecondNs},
                        {"d", kDay},
                        {"w", 7 * kDay},
                        {"y", 366 * kDay}},
                       "a number and s, m, h, d, w or y, such as 36h or 7d");
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  constexpr uint64_t k = 1024;
  return ParseWithUnit(text,
                       {{"", 1},
                        {"b", 1},
                        {"k", k},
                        {"kb", k},
                        {"kib", k},
                        {"m", k * k},
                        {"mb", k * k},
                        {"mib", k * k},
                        {"g", k * k * k},
                        {"gb", k * k * k},
                        {"gib", k * k * k}},
                       "a number and, if wanted, KiB, MiB or GiB, such as 512MiB");
}

bool IsLoopback(std::string_view address) {
  absl::string_view view = ToAbsl(address);
  if (absl::StartsWith(view, "unix:")) return true;
  size_t colon = view.rfind(':');
  absl::string_view host = view.substr(0, colon);
  if (host == "localhost" || host == "[::1]") return true;
  // Names that begin like an address are names still: digits and dots only.
  return absl::StartsWith(host, "127.") &&
         host.find_first_not_of("0123456789.") == absl::string_view::npos;
}

}  // namespace fleetblame::aggregator
