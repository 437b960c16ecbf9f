// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame tags`: which disks wait for tags, who holds them, and what may help.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/commands/command.h"
#include "cli/histogram_proto.h"
#include "cli/rows_table.h"
#include "cli/summary_line.h"
#include "cli/tag_findings.h"
#include "cli/time_spec.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

using Response = v1::TagsResponse;

constexpr int kHoldersShown = 3;
constexpr int kWaitersShown = 10;

struct TagsFlags {
  std::vector<std::string> devices;
  uint32_t waiters = 5;
  std::string watch;
};

std::string Text(const std::string& text) { return text.empty() ? "-" : text; }

std::string SeenText(uint64_t waits, uint64_t ns) {
  const std::optional<uint64_t> seen = SeenNs(waits, ns);
  return seen.has_value() ? HumanNs(*seen) : "-";
}

std::string PoolText(const Response::Row& row) {
  if (!row.has_nr_tags_min()) return "-";
  if (row.nr_tags_min() == row.nr_tags_max()) return absl::StrCat(row.nr_tags_min());
  return absl::StrCat(row.nr_tags_min(), "–", row.nr_tags_max());
}

std::string ActiveText(const Response::Row& row) {
  if (row.active_samples() == 0) return "-";
  return absl::StrFormat(
      "%.1f", static_cast<double>(row.active_sum()) / static_cast<double>(row.active_samples()));
}

std::string SharedText(const Response::Row& row) {
  return row.set().has_shared() ? (row.set().shared() ? "yes" : "no") : "-";
}

std::string KindText(const Response::Row& row) {
  const std::string kind =
      row.kind() == v1::TAG_KIND_UNSPECIFIED ? std::string("-") : TagKindText(row.kind());
  return row.reserved() ? absl::StrCat(kind, ", reserved") : kind;
}

void PrintRows(const Context& context, const Response& r) {
  Table table({{.title = "WAITS"},
               {.title = "WAITED"},
               {.title = "p50", .dispensable = 3},
               {.title = "p99"},
               {.title = "MAX", .dispensable = 2},
               {.title = "AT ONCE", .dispensable = 6},
               {.title = "TAGS", .align = Table::Align::kLeft},
               {.title = "POOL"},
               {.title = "ACTIVE", .dispensable = 4},
               {.title = "SHARED", .align = Table::Align::kLeft, .dispensable = 5},
               {.title = "DEVICE", .align = Table::Align::kLeft},
               {.title = "HOST", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "HELD BY", .align = Table::Align::kLeft, .min_width = 16}});
  for (const auto& row : r.rows()) {
    const v1::TagWaitMetrics& m = row.metrics();
    table.AddRow(
        {HumanCount(m.waits()), SeenText(m.waits(), m.wait_ns()), Quantile(m.wait(), 0.5),
         Quantile(m.wait(), 0.99), m.waits() == 0 ? "-" : SeenText(m.waits(), m.max_wait_ns()),
         HumanCount(m.woke_at_once()), KindText(row), PoolText(row), ActiveText(row),
         SharedText(row), Text(row.device()), row.hostname(), HoldersText(row, kHoldersShown)});
  }
  table.Print(context.terminal, std::cout);
  if (r.omitted_rows() > 0) {
    std::cout << "…" << HumanCount(r.omitted_rows()) << " more with "
              << HumanCount(r.omitted().waits()) << " waits: --limit "
              << static_cast<uint64_t>(r.rows_size()) + r.omitted_rows() << "\n";
  }
}

void PrintFindings(const Response& r) {
  bool first = true;
  for (const auto& row : r.rows()) {
    const std::string finding = Finding(row, r.summary().hosts_matched() > 1);
    if (finding.empty()) continue;
    std::cout << (first ? "\n" : "") << "· " << Printable(finding) << "\n";
    first = false;
  }
}

// Those who waited longest, of all rows that are shown.
void PrintWaiters(const Context& context, const Response& r) {
  std::vector<std::pair<const Response::Row*, const Response::Waiter*>> order;
  for (const auto& row : r.rows()) {
    for (const auto& waiter : row.waiters()) order.emplace_back(&row, &waiter);
  }
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second->wait_ns() > b.second->wait_ns();
  });
  order.resize(std::min<size_t>(order.size(), kWaitersShown));
  Table table({{.title = "WAITED"},
               {.title = "WAITS"},
               {.title = "MAX", .dispensable = 2},
               {.title = "DEVICE", .align = Table::Align::kLeft},
               {.title = "HOST", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "WHO", .align = Table::Align::kLeft},
               {.title = "WHY", .align = Table::Align::kLeft, .min_width = 24}});
  for (const auto& [row, waiter] : order) {
    table.AddRow({SeenText(waiter->waits(), waiter->wait_ns()), HumanCount(waiter->waits()),
                  SeenText(waiter->waits(), waiter->max_wait_ns()), Text(row->device()),
                  row->hostname(), Text(waiter->comm()), DimensionText(waiter->intent())});
  }
  std::cout << "\n";
  table.Print(context.terminal, std::cout);
}

void PrintHardware(const Context& context, const std::string& title, bool driver, uint64_t omitted,
                   const google::protobuf::RepeatedPtrField<Response::Starved>& rows) {
  std::vector<Table::Column> columns = {{.title = "WAITED"},
                                        {.title = "WAITS"},
                                        {.title = "p99"},
                                        {.title = "DISKS"},
                                        {.title = "HOSTS"}};
  if (driver) columns.push_back({.title = "DRIVER", .align = Table::Align::kLeft});
  columns.push_back({.title = title, .align = Table::Align::kLeft, .min_width = 16});
  Table table(std::move(columns));
  for (const auto& row : rows) {
    std::vector<std::string> cells = {
        SeenText(row.metrics().waits(), row.metrics().wait_ns()), HumanCount(row.metrics().waits()),
        Quantile(row.metrics().wait(), 0.99), HumanCount(row.disks()), HumanCount(row.hosts())};
    if (driver) cells.push_back(Text(row.driver()));
    cells.push_back(Text(row.model()));
    table.AddRow(std::move(cells));
  }
  std::cout << "\n";
  table.Print(context.terminal, std::cout);
  if (omitted > 0) std::cout << "…" << HumanCount(omitted) << " more: --limit\n";
}

std::string Lost(const Response& r) {
  std::vector<std::string> lost;
  for (const auto& [name, count] : r.summary().losses()) {
    if (absl::StartsWith(name, "tagwait_") && count > 0) {
      lost.push_back(absl::StrCat(name, " ", HumanCount(count)));
    }
  }
  std::sort(lost.begin(), lost.end());
  if (lost.empty()) return "";
  return absl::StrCat("! Not every tag wait is told in full (", absl::StrJoin(lost, ", "),
                      "); docs/counters.md says what that means.\n");
}

void PrintTable(const Context& context, const Response& r) {
  std::cout << SummaryLines(r.summary(), context.terminal) << Lost(r);
  const uint32_t hosts = r.summary().hosts_matched();
  std::cout << "tags: " << HumanCount(r.hosts_reporting()) << " of " << HumanCount(hosts)
            << (hosts == 1 ? " host" : " hosts") << " reported"
            << (r.has_open_waits() && r.open_waits() > 0
                    ? absl::StrCat(" · ", HumanCount(r.open_waits()), " waiting when last heard of")
                    : "")
            << "\n\n";
  if (r.rows().empty()) {
    std::cout << (r.hosts_reporting() == 0
                      ? "No host reported tag waits: none waited, or the agents do not look; "
                        "`fleetblame-agent --check` on a host says whether it can.\n"
                      : "No tag waits match; --since widens the range.\n");
    return;
  }
  PrintRows(context, r);
  PrintFindings(r);
  PrintWaiters(context, r);
  if (r.controllers_size() > 1 || hosts > 1) {
    PrintHardware(context, "CONTROLLER", true, r.omitted_controllers(), r.controllers());
    PrintHardware(context, "DISK MODEL", false, r.omitted_disk_models(), r.disk_models());
  }
}

// ---- JSON and CSV

Json Known(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json SeenJson(uint64_t waits, uint64_t ns) {
  const std::optional<uint64_t> seen = SeenNs(waits, ns);
  return seen.has_value() ? Json(*seen) : Json();
}

Json QuantileJson(const v1::Histogram& histogram, double q) {
  const SparseHistogram sparse = ToSparse(histogram);
  return sparse.empty() ? Json() : Json(sparse.QuantileNs(q));
}

void AddMetrics(const v1::TagWaitMetrics& m, Json* json) {
  Json& out = *json;
  out["waits"] = m.waits();
  out["wait_ns"] = SeenJson(m.waits(), m.wait_ns());
  out["wait_p50_ns"] = QuantileJson(m.wait(), 0.5);
  out["wait_p90_ns"] = QuantileJson(m.wait(), 0.9);
  out["wait_p99_ns"] = QuantileJson(m.wait(), 0.99);
  out["wait_max_ns"] = m.waits() == 0 ? Json() : SeenJson(m.waits(), m.max_wait_ns());
  out["woke_at_once"] = m.woke_at_once();
  out["rounds"] = m.rounds();
  out["ended_with_tag"] = m.ended_with_tag();
  out["ended_by_signal"] = m.ended_by_signal();
  out["ended_by_removal"] = m.ended_by_removal();
  out["ended_by_freeze"] = m.ended_by_freeze();
  out["ended_unseen"] = m.ended_unseen();
}

Json SettingsJson(const v1::TagDisk& disk) {
  Json json;
  json["scheduler"] = Known(disk.scheduler());
  json["nr_requests"] = disk.has_nr_requests() ? Json(disk.nr_requests()) : Json();
  json["queue_depth"] = disk.has_queue_depth() ? Json(disk.queue_depth()) : Json();
  return json;
}

Json ControllerJson(const v1::TagSet& set) {
  Json json;
  json["driver"] = Known(set.driver());
  json["model"] = Known(set.model());
  json["controller"] = Known(set.host());
  json["pci_address"] = Known(set.pci_address());
  json["pci_id"] = Known(set.pci_id());
  json["pci_subsystem_id"] = Known(set.pci_subsystem_id());
  json["firmware"] = Known(set.firmware());
  json["host_wide"] = set.has_host_wide() ? Json(set.host_wide()) : Json();
  json["queue_depth"] = set.has_queue_depth() ? Json(set.queue_depth()) : Json();
  json["reserved_tags"] = set.has_reserved_tags() ? Json(set.reserved_tags()) : Json();
  json["hw_queues"] = set.has_hw_queues() ? Json(set.hw_queues()) : Json();
  json["can_queue"] = set.has_can_queue() ? Json(set.can_queue()) : Json();
  json["cmd_per_lun"] = set.has_cmd_per_lun() ? Json(set.cmd_per_lun()) : Json();
  return json;
}

Json HolderJson(const Response::Holder& holder) {
  Json json;
  json["device"] = Known(holder.device());
  json["model"] = Known(holder.model());
  json["waiter"] = holder.waiter();
  json["share"] = ShareOf(holder).has_value() ? Json(*ShareOf(holder)) : Json();
  json["tags_mean"] = MeanOf(holder).has_value() ? Json(*MeanOf(holder)) : Json();
  json["tags_max"] = holder.tags_max();
  json["samples"] = holder.samples();
  json["settings"] = holder.has_settings() ? SettingsJson(holder.settings()) : Json();
  return json;
}

Json WaiterJson(const Response::Waiter& waiter) {
  Json json;
  json["comm"] = Known(waiter.comm());
  json["intent"] = Known(waiter.intent().text());
  json["short_id"] = Known(waiter.intent().short_id());
  json["frames"] =
      std::vector<std::string>(waiter.intent().frames().begin(), waiter.intent().frames().end());
  json["reason"] = Known(waiter.intent().modifier());
  json["waits"] = waiter.waits();
  json["wait_ns"] = SeenJson(waiter.waits(), waiter.wait_ns());
  json["wait_max_ns"] = SeenJson(waiter.waits(), waiter.max_wait_ns());
  return json;
}

Json ActiveJson(const Response::Row& row) {
  if (row.active_samples() == 0) return Json();
  return static_cast<double>(row.active_sum()) / static_cast<double>(row.active_samples());
}

Json RowJson(const Response::Row& row) {
  Json json;
  json["host_id"] = row.host_id();
  json["host"] = row.hostname();
  json["device"] = Known(row.device());
  json["device_model"] = Known(row.device_model());
  json["tags"] = row.kind() == v1::TAG_KIND_UNSPECIFIED ? Json() : Json(TagKindText(row.kind()));
  json["reserved"] = row.reserved();
  json["shared"] = row.set().has_shared() ? Json(row.set().shared()) : Json();
  json["nr_tags_min"] = row.has_nr_tags_min() ? Json(row.nr_tags_min()) : Json();
  json["nr_tags_max"] = row.has_nr_tags_max() ? Json(row.nr_tags_max()) : Json();
  json["hctxs"] = row.hctxs() == 0 ? Json() : Json(row.hctxs());
  json["active_mean"] = ActiveJson(row);
  json["active_max"] = row.active_samples() == 0 ? Json() : Json(row.active_max());
  AddMetrics(row.metrics(), &json);
  json["wait_histogram"] = HistogramJson(row.metrics().wait());
  json["controller"] = row.has_set() ? ControllerJson(row.set()) : Json();
  json["settings"] = row.has_settings() ? SettingsJson(row.settings()) : Json();
  json["holders"] = Json::array();
  for (const auto& holder : row.holders()) json["holders"].push_back(HolderJson(holder));
  json["waiters"] = Json::array();
  for (const auto& waiter : row.waiters()) json["waiters"].push_back(WaiterJson(waiter));
  json["omitted_waiters"] = row.omitted_waiters();
  json["sources"] = Json::object();
  for (const auto& source : row.sources()) {
    json["sources"][TagSourceText(source.source())] = source.waits();
  }
  json["finding"] = Known(Finding(row));
  return json;
}

Json StarvedJson(const Response::Starved& starved, bool driver) {
  Json json;
  if (driver) json["driver"] = Known(starved.driver());
  json["model"] = Known(starved.model());
  json["hosts"] = starved.hosts();
  json["disks"] = starved.disks();
  AddMetrics(starved.metrics(), &json);
  return json;
}

void PrintJson(const Response& r, int indent) {
  Json json;
  json["summary"] = SummaryJson(r.summary());
  json["hosts_reporting"] = r.hosts_reporting();
  json["hosts_inferring"] = r.hosts_inferring();
  json["open_waits"] = r.has_open_waits() ? Json(r.open_waits()) : Json();
  json["rows"] = Json::array();
  for (const auto& row : r.rows()) json["rows"].push_back(RowJson(row));
  json["omitted_rows"] = r.omitted_rows();
  json["omitted"] = Json::object();
  AddMetrics(r.omitted(), &json["omitted"]);
  json["controllers"] = Json::array();
  for (const auto& c : r.controllers()) json["controllers"].push_back(StarvedJson(c, true));
  json["omitted_controllers"] = r.omitted_controllers();
  json["disk_models"] = Json::array();
  for (const auto& m : r.disk_models()) json["disk_models"].push_back(StarvedJson(m, false));
  json["omitted_disk_models"] = r.omitted_disk_models();
  Write(json, std::cout, indent);
}

// A field of CSV from one of JSON: unknown is empty.
std::string Field(const Json& json) {
  if (json.is_null()) return "";
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void PrintCsv(const Response& r) {
  static constexpr const char* kColumns[] = {"host_id",
                                             "host",
                                             "device",
                                             "device_model",
                                             "tags",
                                             "reserved",
                                             "shared",
                                             "nr_tags_min",
                                             "nr_tags_max",
                                             "hctxs",
                                             "active_mean",
                                             "active_max",
                                             "waits",
                                             "wait_ns",
                                             "wait_p50_ns",
                                             "wait_p90_ns",
                                             "wait_p99_ns",
                                             "wait_max_ns",
                                             "woke_at_once",
                                             "rounds",
                                             "ended_with_tag",
                                             "ended_by_signal",
                                             "ended_by_removal",
                                             "ended_by_freeze",
                                             "ended_unseen"};
  std::vector<std::string> header(std::begin(kColumns), std::end(kColumns));
  for (const char* more :
       {"driver", "controller_model", "scheduler", "holders", "sources", "finding"}) {
    header.push_back(more);
  }
  WriteCsvRecord(header, std::cout);
  for (const auto& row : r.rows()) {
    const Json json = RowJson(row);
    std::vector<std::string> fields;
    for (const char* column : kColumns) fields.push_back(Field(json[column]));
    fields.push_back(row.set().driver());
    fields.push_back(row.set().model());
    fields.push_back(row.settings().scheduler());
    std::vector<std::string> holders;
    for (const auto& holder : row.holders()) {
      holders.push_back(absl::StrCat(
          holder.device(), "=",
          ShareOf(holder).has_value() ? absl::StrFormat("%.4f", *ShareOf(holder)) : ""));
    }
    fields.push_back(absl::StrJoin(holders, ";"));
    std::vector<std::string> sources;
    for (const auto& source : row.sources()) {
      sources.push_back(absl::StrCat(TagSourceText(source.source()), "=", source.waits()));
    }
    fields.push_back(absl::StrJoin(sources, ";"));
    fields.push_back(Finding(row));
    WriteCsvRecord(fields, std::cout);
  }
}

int Ask(const Context& context, const v1::TagsRequest& request, bool watching) {
  return RunQuery<v1::TagsRequest, Response>(context, request, &v1::Query::Stub::Tags,
                                             [&context, watching](const Response& r) {
                                               if (context.output == Output::kJson)
                                                 return PrintJson(r, watching ? -1 : 2);
                                               if (context.output == Output::kCsv)
                                                 return PrintCsv(r);
                                               // From the top of a cleared screen.
                                               if (watching && context.terminal.is_tty)
                                                 std::cout << "\x1b[H\x1b[2J";
                                               PrintTable(context, r);
                                               if (watching && !context.terminal.is_tty)
                                                 std::cout << "\n";
                                             });
}

int Run(const Context& context, const TagsFlags& flags) {
  v1::TagsRequest request;
  for (const std::string& device : flags.devices) request.add_devices(device);
  request.set_waiters(flags.waiters);
  if (flags.watch.empty()) return Ask(context, request, false);
  auto every = ParseDuration(flags.watch);
  if (!every.ok()) return ReportUsage(every.status());
  if (context.output == Output::kCsv) {
    return ReportUsage(absl::InvalidArgumentError(
        "--watch writes tables or JSON, one object a line; leave out --output csv"));
  }
  // An aggregator that is away for a moment comes back; what fails at first is wrong.
  int code = Ask(context, request, true);
  if (code != kExitOk) return code;
  while (std::cout.flush()) {
    absl::SleepFor(std::max(*every, absl::Milliseconds(100)));
    code = Ask(context, request, true);
    if (code == kExitUsage) return code;
  }
  return kExitOk;
}

}  // namespace

void AddTagsCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("tags", "Which disks wait for tags, and which disks hold them");
  auto flags = std::make_shared<TagsFlags>();
  command->add_option("--device", flags->devices, "only these waiting disks")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--waiters", flags->waiters, "who waited longest, of each disk [default: 5]")
      ->check(CLI::Range(1, 100))
      ->type_name("N");
  command->add_flag("--watch{5s}", flags->watch,
                    "ask again and again, every 5s or --watch=LENGTH, until Ctrl-C");
  AddQueryFlags(command, context);
  command->callback(
      [context, flags] { context->run = [context, flags] { return Run(*context, *flags); }; });
}

}  // namespace fleetblame::cli
