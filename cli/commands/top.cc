// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame top`: who causes the IO, biggest first.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/filter_flags.h"
#include "cli/rows_table.h"
#include "cli/summary_line.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

// What to type next, for the biggest intent in sight.
std::string NextSteps(const v1::TopResponse& response) {
  std::string more;
  if (response.omitted_groups() > 0) {
    more = absl::StrCat("…", HumanCount(response.omitted_groups()), " more with ",
                        HumanBytes(static_cast<double>(response.omitted().bytes())), ": --limit ",
                        response.rows_size() + response.omitted_groups());
  }
  for (const auto& row : response.rows()) {
    for (const auto& value : row.key()) {
      if (value.dimension() != v1::DIMENSION_INTENT || value.short_id().empty()) continue;
      return absl::StrCat(more, more.empty() ? "" : " · ", "fleetblame intent ", value.short_id(),
                          " · fleetblame compare ", value.short_id(), "\n");
    }
  }
  return more.empty() ? "" : absl::StrCat(more, "\n");
}

void Print(const Context& context, const std::vector<v1::Dimension>& by,
           const v1::TopResponse& response) {
  if (context.output == Output::kCsv) return PrintRowsCsv(by, response.rows(), std::cout);
  if (context.output == Output::kJson) {
    Json json;
    json["summary"] = SummaryJson(response.summary());
    json["rows"] = Json::array();
    for (const auto& row : response.rows()) json["rows"].push_back(RowJson(row));
    json["omitted_groups"] = response.omitted_groups();
    json["omitted"] = MetricsJson(response.omitted());
    return Write(json, std::cout);
  }
  std::cout << SummaryLines(response.summary(), context.terminal) << "\n";
  if (response.rows().empty()) {
    std::cout << "No IO matches; `fleetblame hosts` shows who reports, --since widens the range.\n";
    return;
  }
  PrintRowsTable(by, response.rows(), response.summary(), context.terminal,
                 std::cout);
  std::cout << NextSteps(response);
}

int Run(const Context& context, const FilterFlags& flags) {
  v1::TopRequest request;
  if (absl::Status s = Apply(flags, &request); !s.ok()) return ReportUsage(s);
  std::vector<v1::Dimension> by;
  for (int dimension : request.by()) by.push_back(static_cast<v1::Dimension>(dimension));
  return RunQuery<v1::TopRequest, v1::TopResponse>(
      context, request, &v1::Query::Stub::Top,
      [&](const v1::TopResponse& response) { Print(context, by, response); });
}

}  // namespace

void AddTopCommand(CLI::App* app, Context* context) {
  CLI::App* command = app->add_subcommand("top", "Who causes the IO and why, biggest first");
  auto flags = std::make_shared<FilterFlags>();
  flags->by = "comm,intent";
  AddFilterFlags(command, flags.get());
  AddQueryFlags(command, context);
  command->callback(
      [context, flags] { context->run = [context, flags] { return Run(*context, *flags); }; });
}

}  // namespace fleetblame::cli
