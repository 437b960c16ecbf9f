// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame series`: rates over time, drawn as lines of blocks.
#include <algorithm>
#include <iostream>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/bars.h"
#include "cli/commands/command.h"
#include "cli/filter_flags.h"
#include "cli/names.h"
#include "cli/rows_table.h"
#include "cli/summary_line.h"
#include "cli/time_spec.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

std::string LineName(const v1::SeriesResponse::Line& line) {
  std::vector<std::string> parts;
  for (const auto& value : line.key()) parts.push_back(DimensionText(value));
  return parts.empty() ? "all" : absl::StrJoin(parts, " · ");
}

void PrintTable(const Context& context, const v1::SeriesResponse& r) {
  std::cout << SummaryLines(r.summary(), context.terminal) << "\n";
  double seconds = std::max(1e-9, static_cast<double>(r.step_ns()) / 1e9);
  Table table(
      {{.title = "TOTAL"},
       {.title = "PEAK"},
       {.title = absl::StrCat("STEP ", HumanSpan(r.step_ns())), .align = Table::Align::kLeft},
       {.title = "WHAT", .align = Table::Align::kLeft, .min_width = 16}});
  for (const auto& line : r.lines()) {
    std::vector<double> rates;
    for (const auto& point : line.points())
      rates.push_back(static_cast<double>(point.bytes()) / seconds);
    double peak = rates.empty() ? 0 : *std::max_element(rates.begin(), rates.end());
    table.AddRow({HumanBytes(static_cast<double>(line.total().bytes())),
                  absl::StrCat(HumanBytes(peak), "/s"), Sparkline(rates), LineName(line)});
  }
  if (!r.incomplete_steps().empty() && !r.lines().empty()) {
    std::set<uint32_t> incomplete(r.incomplete_steps().begin(), r.incomplete_steps().end());
    std::string marks;
    for (int i = 0; i < r.lines(0).points_size(); ++i)
      marks += incomplete.contains(static_cast<uint32_t>(i)) ? "?" : "·";
    table.AddRow({"", "", marks, "? = incomplete or no data"});
  }
  table.Print(context.terminal, std::cout);
  std::cout << "from " << HumanTime(r.first_unix_ns()) << " UTC, " << HumanSpan(r.step_ns())
            << " a character";
  if (r.omitted_groups() > 0)
    std::cout << "; " << HumanCount(r.omitted_groups()) << " more lines: --limit";
  std::cout << "\n";
}

void PrintJson(const v1::SeriesResponse& r) {
  Json json;
  json["summary"] = SummaryJson(r.summary());
  json["step_ns"] = r.step_ns();
  json["first_unix_ns"] = r.first_unix_ns();
  json["incomplete_steps"] =
      std::vector<uint32_t>(r.incomplete_steps().begin(), r.incomplete_steps().end());
  json["lines"] = Json::array();
  for (const auto& line : r.lines()) {
    Json entry;
    entry["key"] = KeyJson(line.key());
    entry["total"] = MetricsJson(line.total());
    entry["points"] = Json::array();
    for (const auto& p : line.points()) {
      entry["points"].push_back({{"bytes", p.bytes()},
                                 {"read_bytes", p.read_bytes()},
                                 {"written_bytes", p.written_bytes()},
                                 {"ios", p.ios()},
                                 {"wait_ns", p.wait_ns()},
                                 {"io_ns", p.io_ns()}});
    }
    json["lines"].push_back(std::move(entry));
  }
  json["omitted_groups"] = r.omitted_groups();
  Write(json, std::cout);
}

void PrintCsv(const std::vector<v1::Dimension>& by, const v1::SeriesResponse& r) {
  std::vector<std::string> header = {"start_unix_ns"};
  for (v1::Dimension dimension : by) header.emplace_back(DimensionName(dimension));
  for (const char* name :
       {"bytes", "read_bytes", "written_bytes", "ios", "wait_ns", "io_ns", "incomplete"}) {
    header.emplace_back(name);
  }
  WriteCsvRecord(header, std::cout);
  std::set<uint32_t> incomplete(r.incomplete_steps().begin(), r.incomplete_steps().end());
  for (const auto& line : r.lines()) {
    for (int i = 0; i < line.points_size(); ++i) {
      const auto& p = line.points(i);
      std::vector<std::string> fields = {
          absl::StrCat(r.first_unix_ns() + static_cast<uint64_t>(i) * r.step_ns())};
      for (const auto& value : line.key()) fields.push_back(value.text());
      for (uint64_t value :
           {p.bytes(), p.read_bytes(), p.written_bytes(), p.ios(), p.wait_ns(), p.io_ns()}) {
        fields.push_back(absl::StrCat(value));
      }
      fields.push_back(incomplete.contains(static_cast<uint32_t>(i)) ? "true" : "false");
      WriteCsvRecord(fields, std::cout);
    }
  }
}

int Run(const Context& context, const FilterFlags& flags, const std::string& step) {
  v1::SeriesRequest request;
  if (absl::Status s = Apply(flags, &request); !s.ok()) return ReportUsage(s);
  if (!step.empty()) {
    auto duration = ParseDuration(step);
    if (!duration.ok()) return ReportUsage(duration.status());
    request.set_step_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(*duration)));
  } else if (context.terminal.width > 0) {
    // As many steps as fit beside the names.
    auto range = RangeOf(context);
    if (range.ok()) {
      int steps = std::clamp(context.terminal.width - 50, 20, 120);
      request.set_step_ns((range->end_unix_ns() - range->start_unix_ns()) /
                          static_cast<uint64_t>(steps));
    }
  }
  std::vector<v1::Dimension> by;
  for (int dimension : request.by()) by.push_back(static_cast<v1::Dimension>(dimension));
  return RunQuery<v1::SeriesRequest, v1::SeriesResponse>(context, request, &v1::Query::Stub::Series,
                                                         [&](const v1::SeriesResponse& r) {
                                                           if (context.output == Output::kJson)
                                                             return PrintJson(r);
                                                           if (context.output == Output::kCsv)
                                                             return PrintCsv(by, r);
                                                           PrintTable(context, r);
                                                         });
}

}  // namespace

void AddSeriesCommand(CLI::App* app, Context* context) {
  CLI::App* command = app->add_subcommand("series", "IO over time, one line for each group");
  auto flags = std::make_shared<FilterFlags>();
  auto step = std::make_shared<std::string>();
  AddFilterFlags(command, flags.get());
  command->add_option("--step", *step, "length of a step (10s, 1m, ...) [default: what fits]")
      ->type_name("LENGTH");
  AddQueryFlags(command, context);
  command->callback([context, flags, step] {
    context->run = [context, flags, step] { return Run(*context, *flags, *step); };
  });
}

}  // namespace fleetblame::cli
