// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame compare ID`: is it only here? One intent over all hosts, outliers first.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/bars.h"
#include "cli/commands/command.h"
#include "cli/rows_table.h"
#include "cli/summary_line.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

constexpr int kBarWidth = 20;

std::string Rate(double bytes_per_second) {
  return absl::StrCat(HumanBytes(bytes_per_second), "/s");
}

void PrintTable(const Context& context, const v1::CompareHostsResponse& r) {
  std::cout << SummaryLines(r.summary(), context.terminal) << "\n"
            << Printable(DimensionText(r.intent())) << "\n"
            << "median host " << Rate(r.median_bytes_per_second()) << ", typical distance "
            << Rate(r.mad_bytes_per_second()) << "\n\n";
  double largest = 0;
  for (const auto& host : r.hosts()) largest = std::max(largest, host.bytes_per_second());
  Table table({{.title = "HOST", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "RATE"},
               {.title = "", .align = Table::Align::kLeft, .dispensable = 2},
               {.title = "Z"},
               {.title = "OF HOST"},
               {.title = "IO p50", .dispensable = 3},
               {.title = "p99", .dispensable = 1},
               {.title = "LABELS", .align = Table::Align::kLeft, .min_width = 8}});
  for (const auto& host : r.hosts()) {
    std::map<std::string, std::string> labels(host.labels().begin(), host.labels().end());
    table.AddRow({host.hostname(), Rate(host.bytes_per_second()),
                  Bar(host.bytes_per_second(), largest, kBarWidth),
                  host.has_robust_z() ? absl::StrFormat("%+.1f", host.robust_z()) : "-",
                  HumanPercent(host.share_of_host(), 1), Quantile(host.metrics().io(), 0.5),
                  Quantile(host.metrics().io(), 0.99),
                  absl::StrJoin(labels, " ", absl::PairFormatter("="))});
  }
  table.Print(context.terminal, std::cout);
  if (r.omitted() > 0)
    std::cout << "…" << HumanCount(r.omitted()) << " more: --limit " << r.hosts_size() + r.omitted()
              << "\n";
  for (const auto& label : r.shared_labels()) {
    std::cout << "Outliers share " << Printable(label.name()) << "=" << Printable(label.value())
              << ": " << label.outliers_with() << " of " << label.outliers() << ", against "
              << label.others_with() << " of " << label.others() << " others\n";
  }
}

void PrintJson(const v1::CompareHostsResponse& r) {
  Json json;
  json["summary"] = SummaryJson(r.summary());
  json["intent"] = IntentJson(r.intent());
  json["median_bytes_per_second"] = r.median_bytes_per_second();
  json["mad_bytes_per_second"] = r.mad_bytes_per_second();
  json["hosts"] = Json::array();
  for (const auto& host : r.hosts()) {
    Json entry;
    entry["host_id"] = host.host_id();
    entry["host"] = host.hostname();
    entry["labels"] =
        std::map<std::string, std::string>(host.labels().begin(), host.labels().end());
    entry["bytes_per_second"] = host.bytes_per_second();
    entry["share_of_host"] = host.share_of_host();
    entry["robust_z"] = host.has_robust_z() ? Json(host.robust_z()) : Json();
    entry["metrics"] = MetricsJson(host.metrics());
    json["hosts"].push_back(std::move(entry));
  }
  json["omitted"] = r.omitted();
  json["shared_labels"] = Json::array();
  for (const auto& label : r.shared_labels()) {
    json["shared_labels"].push_back({{"name", label.name()},
                                     {"value", label.value()},
                                     {"outliers_with", label.outliers_with()},
                                     {"outliers", label.outliers()},
                                     {"others_with", label.others_with()},
                                     {"others", label.others()}});
  }
  Write(json, std::cout);
}

void PrintCsv(const v1::CompareHostsResponse& r) {
  WriteCsvRecord(
      {"host_id", "host", "bytes_per_second", "share_of_host", "robust_z", "bytes", "ios"},
      std::cout);
  for (const auto& host : r.hosts()) {
    WriteCsvRecord({host.host_id(), host.hostname(), absl::StrCat(host.bytes_per_second()),
                    absl::StrCat(host.share_of_host()),
                    host.has_robust_z() ? absl::StrCat(host.robust_z()) : "",
                    absl::StrCat(host.metrics().bytes()), absl::StrCat(host.metrics().ios())},
                   std::cout);
  }
}

}  // namespace

void AddCompareCommand(CLI::App* app, Context* context) {
  CLI::App* command = app->add_subcommand("compare", "One intent over all hosts, outliers first");
  auto id = std::make_shared<std::string>();
  auto issuer = std::make_shared<bool>(false);
  auto dirtier = std::make_shared<bool>(false);
  command->add_option("ID", *id, "intent id in hex, or a unique prefix of it")->required();
  CLI::Option* issuer_flag =
      command->add_flag("--issuer", *issuer, "as the one who submitted the IO");
  command->add_flag("--dirtier", *dirtier, "as the one who made it necessary [default]")
      ->excludes(issuer_flag);
  AddQueryFlags(command, context);
  command->callback([context, id, issuer, dirtier] {
    context->run = [context, id, issuer] {
      v1::CompareHostsRequest request;
      request.set_intent(*id);
      request.set_side(*issuer ? v1::SIDE_ISSUER : v1::SIDE_DIRTIER);
      return RunQuery<v1::CompareHostsRequest, v1::CompareHostsResponse>(
          *context, request, &v1::Query::Stub::CompareHosts,
          [&](const v1::CompareHostsResponse& r) {
            if (context->output == Output::kJson) return PrintJson(r);
            if (context->output == Output::kCsv) return PrintCsv(r);
            PrintTable(*context, r);
          });
    };
  });
}

}  // namespace fleetblame::cli
