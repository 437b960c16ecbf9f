// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame hosts`: which machines report, and whether they still do.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/summary_line.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

std::string Labels(const v1::Host& host) {
  std::map<std::string, std::string> sorted(host.labels().begin(), host.labels().end());
  return absl::StrJoin(sorted, " ", absl::PairFormatter("="));
}

std::string LastSeen(const v1::Host& host, absl::Time now) {
  if (host.connected()) return "connected";
  absl::Duration ago = now - absl::FromUnixNanos(static_cast<int64_t>(host.last_seen_unix_ns()));
  return absl::StrCat(
      HumanSpan(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(ago)))),
      " ago");
}

void PrintTable(const Context& context, const v1::ListHostsResponse& response) {
  std::cout << SummaryLines(response.summary(), context.terminal) << "\n";
  Table table({{.title = "HOST", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "SEEN", .align = Table::Align::kLeft},
               {.title = "WRITTEN"},
               {.title = "READ"},
               {.title = "SKEW", .dispensable = 2},
               {.title = "KERNEL", .align = Table::Align::kLeft, .min_width = 8, .dispensable = 1},
               {.title = "TRACER", .align = Table::Align::kLeft, .dispensable = 3},
               {.title = "LABELS", .align = Table::Align::kLeft, .min_width = 10}});
  absl::Time now = absl::Now();
  for (const v1::Host& host : response.hosts()) {
    table.AddRow({host.hostname(), LastSeen(host, now),
                  HumanBytes(static_cast<double>(host.written_bytes())),
                  HumanBytes(static_cast<double>(host.read_bytes())),
                  absl::StrCat(host.clock_skew_ns() < 0 ? "-" : "",
                               HumanNs(static_cast<uint64_t>(std::abs(host.clock_skew_ns())))),
                  host.kernel_release(), host.tracer(), Labels(host)});
  }
  table.Print(context.terminal, std::cout);
  if (response.omitted() > 0) {
    std::cout << "…" << HumanCount(response.omitted()) << " more: --limit "
              << response.hosts_size() + response.omitted() << "\n";
  }
}

Json HostJson(const v1::Host& host) {
  Json json;
  json["host_id"] = host.host_id();
  json["host"] = host.hostname();
  json["connected"] = host.connected();
  json["labels"] = std::map<std::string, std::string>(host.labels().begin(), host.labels().end());
  json["kernel_release"] = host.kernel_release();
  json["agent_version"] = host.agent_version();
  json["tracer"] = host.tracer();
  json["first_seen"] = TimeJson(host.first_seen_unix_ns());
  json["last_seen"] = TimeJson(host.last_seen_unix_ns());
  json["clock_skew_ns"] = host.clock_skew_ns();
  json["read_bytes"] = host.read_bytes();
  json["written_bytes"] = host.written_bytes();
  return json;
}

void PrintJson(const v1::ListHostsResponse& response) {
  Json json;
  json["summary"] = SummaryJson(response.summary());
  json["hosts"] = Json::array();
  for (const v1::Host& host : response.hosts()) json["hosts"].push_back(HostJson(host));
  json["omitted"] = response.omitted();
  Write(json, std::cout);
}

void PrintCsv(const v1::ListHostsResponse& response) {
  WriteCsvRecord(
      {"host_id", "host", "connected", "last_seen_unix_ns", "read_bytes", "written_bytes",
       "clock_skew_ns", "kernel_release", "agent_version", "tracer", "labels"},
      std::cout);
  for (const v1::Host& host : response.hosts()) {
    WriteCsvRecord({host.host_id(), host.hostname(), host.connected() ? "true" : "false",
                    absl::StrCat(host.last_seen_unix_ns()), absl::StrCat(host.read_bytes()),
                    absl::StrCat(host.written_bytes()), absl::StrCat(host.clock_skew_ns()),
                    host.kernel_release(), host.agent_version(), host.tracer(), Labels(host)},
                   std::cout);
  }
}

}  // namespace

void AddHostsCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("hosts", "Which hosts report, and since when they do not");
  AddQueryFlags(command, context);
  command->callback([context] {
    context->run = [context] {
      return RunQuery<v1::ListHostsRequest, v1::ListHostsResponse>(
          *context, {}, &v1::Query::Stub::ListHosts, [context](const v1::ListHostsResponse& r) {
            if (context->output == Output::kJson) return PrintJson(r);
            if (context->output == Output::kCsv) return PrintCsv(r);
            PrintTable(*context, r);
          });
    };
  });
}

}  // namespace fleetblame::cli
