// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame hosts`: which machines report, and whether they still do; with --devices, which block
// devices they have.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/host_devices.h"
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

std::string Skew(int64_t ns) {
  const auto bits = static_cast<uint64_t>(ns);
  return absl::StrCat(ns < 0 ? "-" : "", HumanNs(ns < 0 ? 0 - bits : bits));
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
                  HumanBytes(static_cast<double>(host.read_bytes())), Skew(host.clock_skew_ns()),
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

// As many as the aggregator gives: devices are put together from their directions here.
constexpr uint32_t kAllBooks = 10'000;

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string Lower(const v1::Device& device) { return absl::StrJoin(device.lower(), ","); }

std::string BytesOrDash(std::optional<uint64_t> bytes) {
  return bytes.has_value() ? HumanBytes(static_cast<double>(*bytes)) : "-";
}

std::string BytesOrNothing(std::optional<uint64_t> bytes) {
  return bytes.has_value() ? absl::StrCat(*bytes) : "";
}

// How many of the devices are shown.
size_t Shown(const Context& context, const std::vector<HostDevice>& devices) {
  return context.limit == 0 ? devices.size() : std::min<size_t>(context.limit, devices.size());
}

void PrintDevicesTable(const Context& context, const v1::CoverageResponse& response) {
  std::cout << SummaryLines(response.summary(), context.terminal) << "\n";
  Table table({{.title = "HOST", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "DEVICE", .align = Table::Align::kLeft},
               {.title = "NAME", .align = Table::Align::kLeft},
               {.title = "ON", .align = Table::Align::kLeft, .dispensable = 2},
               {.title = "ID", .align = Table::Align::kLeft},
               {.title = "MODEL", .align = Table::Align::kLeft, .dispensable = 1},
               {.title = "WRITTEN"},
               {.title = "READ"}});
  const std::vector<HostDevice> devices = HostDevices(response);
  const size_t shown = Shown(context, devices);
  for (size_t i = 0; i < shown; ++i) {
    const HostDevice& d = devices[i];
    table.AddRow({d.host, d.device, OrDash(d.info.alias()), OrDash(Lower(d.info)),
                  OrDash(d.info.persistent_id()), OrDash(d.info.model()),
                  BytesOrDash(d.written_bytes), BytesOrDash(d.read_bytes)});
  }
  table.Print(context.terminal, std::cout);
  if (shown < devices.size()) {
    std::cout << "…" << HumanCount(devices.size() - shown) << " more: --limit " << devices.size()
              << "\n";
  }
  if (response.omitted() > 0) {
    std::cout
        << "! " << HumanCount(response.omitted())
        << " books (directions of devices) were not sent, - where one is missing here; choose "
           "fewer hosts with --hosts\n";
  }
}

void PrintDevicesJson(const Context& context, const v1::CoverageResponse& response) {
  Json json;
  json["summary"] = SummaryJson(response.summary());
  json["devices"] = Json::array();
  const std::vector<HostDevice> devices = HostDevices(response);
  const size_t shown = Shown(context, devices);
  for (size_t i = 0; i < shown; ++i) {
    const HostDevice& d = devices[i];
    Json entry;
    entry["host_id"] = d.host_id;
    entry["host"] = d.host;
    entry["device"] = d.device;
    entry["device_info"] = DeviceJson(d.info);
    entry["read_bytes"] = d.read_bytes.has_value() ? Json(*d.read_bytes) : Json();
    entry["written_bytes"] = d.written_bytes.has_value() ? Json(*d.written_bytes) : Json();
    json["devices"].push_back(std::move(entry));
  }
  json["omitted"] = devices.size() - shown;
  json["omitted_books"] = response.omitted();
  Write(json, std::cout);
}

void PrintDevicesCsv(const Context& context, const v1::CoverageResponse& response) {
  WriteCsvRecord({"host_id", "host", "device", "alias", "lower", "persistent_id", "model",
                  "read_bytes", "written_bytes"},
                 std::cout);
  const std::vector<HostDevice> devices = HostDevices(response);
  const size_t shown = Shown(context, devices);
  for (size_t i = 0; i < shown; ++i) {
    const HostDevice& d = devices[i];
    WriteCsvRecord(
        {d.host_id, d.host, d.device, d.info.alias(), Lower(d.info), d.info.persistent_id(),
         d.info.model(), BytesOrNothing(d.read_bytes), BytesOrNothing(d.written_bytes)},
        std::cout);
  }
}

int RunDevices(const Context& context) {
  Context all = context;
  all.limit = kAllBooks;
  return RunQuery<v1::CoverageRequest, v1::CoverageResponse>(
      all, {}, &v1::Query::Stub::Coverage, [&context](const v1::CoverageResponse& r) {
        if (context.output == Output::kJson) return PrintDevicesJson(context, r);
        if (context.output == Output::kCsv) return PrintDevicesCsv(context, r);
        PrintDevicesTable(context, r);
      });
}

}  // namespace

void AddHostsCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("hosts", "Which hosts report, and since when they do not");
  AddQueryFlags(command, context);
  auto devices = std::make_shared<bool>(false);
  command->add_flag("--devices", *devices,
                    "their block devices instead: names, WWN or serial, what they lie on");
  command->callback([context, devices] {
    context->run = [context, devices] {
      if (*devices) return RunDevices(*context);
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
