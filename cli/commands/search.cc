// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame search REGEX`: intents that have a frame like this.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/rows_table.h"
#include "cli/summary_line.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

std::string MatchingFrames(const v1::SearchIntentsResponse::Match& match) {
  std::vector<std::string> frames;
  for (uint32_t at : match.matching_frames()) {
    if (at < static_cast<uint32_t>(match.intent().frames_size())) {
      frames.push_back(match.intent().frames(static_cast<int>(at)));
    }
  }
  return absl::StrJoin(frames, " ");
}

void PrintTable(const Context& context, const v1::SearchIntentsResponse& r) {
  std::cout << SummaryLines(r.summary(), context.terminal) << "\n";
  if (r.matches().empty()) {
    std::cout << "No intent in this range has such a frame.\n";
    return;
  }
  Table table({{.title = "BYTES"},
               {.title = "IOS"},
               {.title = "HOSTS", .dispensable = 1},
               {.title = "INTENT", .align = Table::Align::kLeft, .min_width = 24},
               {.title = "MATCHES", .align = Table::Align::kLeft, .min_width = 16}});
  for (const auto& match : r.matches()) {
    table.AddRow({HumanBytes(static_cast<double>(match.metrics().bytes())),
                  HumanCount(match.metrics().ios()), absl::StrCat(match.metrics().hosts()),
                  DimensionText(match.intent()), MatchingFrames(match)});
  }
  table.Print(context.terminal, std::cout);
  if (r.omitted() > 0)
    std::cout << "…" << HumanCount(r.omitted()) << " more: --limit "
              << r.matches_size() + r.omitted() << "\n";
}

void PrintJson(const v1::SearchIntentsResponse& r) {
  Json json;
  json["summary"] = SummaryJson(r.summary());
  json["matches"] = Json::array();
  for (const auto& match : r.matches()) {
    Json entry = IntentJson(match.intent());
    entry["matching_frames"] =
        std::vector<uint32_t>(match.matching_frames().begin(), match.matching_frames().end());
    entry.update(MetricsJson(match.metrics()));
    json["matches"].push_back(std::move(entry));
  }
  json["omitted"] = r.omitted();
  Write(json, std::cout);
}

void PrintCsv(const v1::SearchIntentsResponse& r) {
  WriteCsvRecord({"intent", "reason", "bytes", "ios", "hosts", "matching_frames", "frames"},
                 std::cout);
  for (const auto& match : r.matches()) {
    WriteCsvRecord(
        {match.intent().text(), match.intent().modifier(), absl::StrCat(match.metrics().bytes()),
         absl::StrCat(match.metrics().ios()), absl::StrCat(match.metrics().hosts()),
         MatchingFrames(match), absl::StrJoin(match.intent().frames(), ";")},
        std::cout);
  }
}

}  // namespace

void AddSearchCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("search", "Intents with a frame that matches a regular expression");
  auto regex = std::make_shared<std::string>();
  command->add_option("REGEX", *regex, "RE2, unanchored, tried on each frame: '^xfs_', 'fsync'")
      ->required();
  AddQueryFlags(command, context);
  command->callback([context, regex] {
    context->run = [context, regex] {
      v1::SearchIntentsRequest request;
      request.set_frame_regex(*regex);
      return RunQuery<v1::SearchIntentsRequest, v1::SearchIntentsResponse>(
          *context, request, &v1::Query::Stub::SearchIntents,
          [&](const v1::SearchIntentsResponse& r) {
            if (context->output == Output::kJson) return PrintJson(r);
            if (context->output == Output::kCsv) return PrintCsv(r);
            PrintTable(*context, r);
          });
    };
  });
}

}  // namespace fleetblame::cli
