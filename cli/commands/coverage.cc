// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame coverage`: do the books balance, host by host and device by device?
#include <iostream>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/loss_lines.h"
#include "cli/names.h"
#include "cli/summary_line.h"
#include "cli/units.h"
#include "common/absl_view.h"
#include "common/saturating.h"

namespace fleetblame::cli {
namespace {

// recorded + lost - kernel: what the books are off by.
int64_t Difference(const v1::CoverageResponse::Row& row) {
  return SaturatingDifference(SaturatingAdd(row.recorded_bytes(), row.lost_bytes()),
                              row.kernel_bytes());
}

std::string SignedBytes(int64_t bytes) {
  if (bytes == 0) return "0";
  return absl::StrCat(bytes < 0 ? "-" : "+", HumanBytes(std::abs(static_cast<double>(bytes))));
}

// "exact 96 %, journal 4 %"
std::string BlameText(const v1::CoverageResponse::Row& row) {
  uint64_t total = 0;
  for (const auto& [name, bytes] : row.bytes_by_confidence()) Grow(&total, bytes);
  std::vector<std::string> parts;
  for (int c = v1::Confidence_MIN + 1; c <= v1::Confidence_MAX; ++c) {
    const std::string name(ConfidenceName(static_cast<v1::Confidence>(c)));
    auto at = row.bytes_by_confidence().find(name);
    if (at == row.bytes_by_confidence().end() || at->second == 0) continue;
    parts.push_back(absl::StrCat(
        name, " ", HumanPercent(static_cast<double>(at->second), static_cast<double>(total))));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

// "dm-0 (vg-root) on sda, sdb"
std::string DeviceText(const v1::CoverageResponse::Row& row) {
  const v1::Device& device = row.device_info();
  std::string text = row.device();
  if (!device.alias().empty()) absl::StrAppend(&text, " (", device.alias(), ")");
  if (device.lower_size() > 0) absl::StrAppend(&text, " on ", absl::StrJoin(device.lower(), ", "));
  return text;
}

void PrintTable(const Context& context, const v1::CoverageResponse& r, bool verbose) {
  std::cout << SummaryLines(r.summary(), context.terminal) << "\n";
  Table table({{.title = "RECORDED"},
               {.title = "LOST"},
               {.title = "KERNEL"},
               {.title = "OFF BY"},
               {.title = "BLAMED"},
               {.title = "BY", .align = Table::Align::kLeft, .dispensable = 2},
               {.title = "OP", .align = Table::Align::kLeft},
               {.title = "DEVICE", .align = Table::Align::kLeft},
               {.title = "ID", .align = Table::Align::kLeft, .dispensable = 1},
               {.title = "HOST", .align = Table::Align::kLeft, .min_width = 12}});
  for (const auto& row : r.rows()) {
    table.AddRow(
        {HumanBytes(static_cast<double>(row.recorded_bytes())),
         HumanBytes(static_cast<double>(row.lost_bytes())),
         HumanBytes(static_cast<double>(row.kernel_bytes())), SignedBytes(Difference(row)),
         HumanPercent(static_cast<double>(row.recorded_bytes()),
                      static_cast<double>(row.kernel_bytes())),
         BlameText(row), std::string(OperationName(row.direction())), DeviceText(row),
         row.device_info().persistent_id().empty() ? "-" : row.device_info().persistent_id(),
         row.hostname()});
  }
  table.Print(context.terminal, std::cout);
  if (r.omitted() > 0)
    std::cout << "…" << HumanCount(r.omitted()) << " more: --limit " << r.rows_size() + r.omitted()
              << "\n";
  std::cout << LossLines(r.summary(), verbose);
}

void PrintJson(const v1::CoverageResponse& r) {
  Json json;
  json["summary"] = SummaryJson(r.summary());
  json["rows"] = Json::array();
  for (const auto& row : r.rows()) {
    Json entry;
    entry["host_id"] = row.host_id();
    entry["host"] = row.hostname();
    entry["device"] = row.device();
    entry["device_info"] = DeviceJson(row.device_info());
    entry["op"] = OperationName(row.direction());
    entry["recorded_bytes"] = row.recorded_bytes();
    entry["lost_bytes"] = row.lost_bytes();
    entry["kernel_bytes"] = row.kernel_bytes();
    entry["off_by_bytes"] = Difference(row);
    entry["bytes_by_confidence"] = Json::object();
    for (const auto& [name, bytes] : std::map<std::string, uint64_t>(
             row.bytes_by_confidence().begin(), row.bytes_by_confidence().end())) {
      entry["bytes_by_confidence"][name] = bytes;
    }
    entry["recorded_ios"] = row.recorded_ios();
    entry["kernel_ios"] = row.kernel_ios();
    json["rows"].push_back(std::move(entry));
  }
  json["omitted"] = r.omitted();
  Write(json, std::cout);
}

void PrintCsv(const v1::CoverageResponse& r) {
  WriteCsvRecord({"host_id", "host", "device", "op", "recorded_bytes", "lost_bytes", "kernel_bytes",
                  "off_by_bytes", "recorded_ios", "kernel_ios"},
                 std::cout);
  for (const auto& row : r.rows()) {
    WriteCsvRecord(
        {row.host_id(), row.hostname(), row.device(), std::string(OperationName(row.direction())),
         absl::StrCat(row.recorded_bytes()), absl::StrCat(row.lost_bytes()),
         absl::StrCat(row.kernel_bytes()), absl::StrCat(Difference(row)),
         absl::StrCat(row.recorded_ios()), absl::StrCat(row.kernel_ios())},
        std::cout);
  }
}

}  // namespace

void AddCoverageCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("coverage", "Do the books balance with the kernel's own counters?");
  AddQueryFlags(command, context);
  auto verbose = std::make_shared<bool>(false);
  command->add_flag("--verbose", *verbose,
                    "also counters by which neither bytes nor blame are lost");
  command->callback([context, verbose] {
    context->run = [context, verbose] {
      return RunQuery<v1::CoverageRequest, v1::CoverageResponse>(
          *context, {}, &v1::Query::Stub::Coverage,
          [context, verbose](const v1::CoverageResponse& r) {
            if (context->output == Output::kJson) return PrintJson(r);
            if (context->output == Output::kCsv) return PrintCsv(r);
            PrintTable(*context, r, *verbose);
          });
    };
  });
}

}  // namespace fleetblame::cli
