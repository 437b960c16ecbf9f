// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/command.h"

#include <iostream>
#include <limits>

#include "cli/time_spec.h"

namespace fleetblame::cli {

void AddOutputFlag(CLI::App* command, Context* context, bool csv) {
  const auto parse = [context, csv](const std::string& word) {
    if (word == "table") {
      context->output = Output::kTable;
    } else if (word == "json") {
      context->output = Output::kJson;
    } else if (word == "csv" && csv) {
      context->output = Output::kCsv;
    } else {
      throw CLI::ValidationError(
          "--output",
          "'" + word + "' is no format here; there are: table, json" + (csv ? ", csv" : ""));
    }
  };
  command
      ->add_option_function<std::string>(
          "-o,--output", parse,
          csv ? "table, json or csv; field names of the last two are stable"
              : "table or json; field names of the latter are stable")
      ->type_name("FORMAT");
}

void AddSelectorFlag(CLI::App* command, Context* context) {
  command
      ->add_option("--hosts", context->hosts,
                   "only hosts that match, in Prometheus' language: '{role=\"db\",dc=~\"fra.*\"}'; "
                   "host and kernel are labels too")
      ->type_name("SELECTOR");
}

void AddQueryFlags(CLI::App* command, Context* context) {
  command
      ->add_option("--since", context->since,
                   "start: how long ago (10m, 2h, 7d) or a UTC time [default: 1h]")
      ->type_name("TIME");
  command->add_option("--until", context->until, "end, in the same forms [default: now]")
      ->type_name("TIME");
  AddSelectorFlag(command, context);
  command->add_option("--limit", context->limit, "rows to show [default: 20]")
      ->check(CLI::Range(1, 10'000))
      ->type_name("N");
  AddOutputFlag(command, context);
}

absl::StatusOr<v1::TimeRange> RangeOf(const Context& context) {
  absl::Time now = absl::Now();
  auto until = ParseTime(context.until, now);
  if (!until.ok()) return until.status();
  // "--since 1h --until 2026-03-01" means the hour before that day.
  auto since = ParseTime(context.since, *until);
  if (!since.ok()) return since.status();
  if (*since >= *until) {
    return absl::InvalidArgumentError("--since is not before --until; swap them or leave one out");
  }
  // The wire counts nanoseconds.
  if (*until > absl::FromUnixNanos(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError("--until is after the year 2262");
  }
  if (*since < absl::UnixEpoch()) return absl::InvalidArgumentError("--since is before 1970");
  v1::TimeRange range;
  range.set_start_unix_ns(static_cast<uint64_t>(absl::ToUnixNanos(*since)));
  range.set_end_unix_ns(static_cast<uint64_t>(absl::ToUnixNanos(*until)));
  return range;
}

int ReportUsage(const absl::Status& status) {
  std::cerr << "fleetblame: " << Printable(std::string(status.message())) << "\n";
  return kExitUsage;
}

}  // namespace fleetblame::cli
