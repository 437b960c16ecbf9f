// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame intent ID`: everything about one intent.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/bars.h"
#include "cli/commands/command.h"
#include "cli/histogram_proto.h"
#include "cli/rows_table.h"
#include "cli/summary_line.h"
#include "cli/units.h"
#include "common/histogram.h"

namespace fleetblame::cli {
namespace {

constexpr int kBarWidth = 40;

// One line for each power of two that holds anything.
void PrintHistogram(const char* title, const v1::Histogram& histogram) {
  SparseHistogram sparse = ToSparse(histogram);
  if (sparse.empty()) return;
  std::map<int, uint64_t> octaves;
  uint64_t largest = 0;
  for (const auto& [bucket, count] : sparse.entries()) {
    int octave = bucket == 0 ? -1 : (bucket - 1) / kHistogramSubBuckets;
    largest = std::max(largest, octaves[octave] += count);
  }
  std::cout << title << "  p50 " << HumanNs(sparse.QuantileNs(0.5)) << "  p90 "
            << HumanNs(sparse.QuantileNs(0.9)) << "  p99 " << HumanNs(sparse.QuantileNs(0.99))
            << "\n";
  for (int octave = octaves.begin()->first; octave <= octaves.rbegin()->first; ++octave) {
    uint64_t count = octaves.contains(octave) ? octaves[octave] : 0;
    std::string from =
        octave < 0 ? "0" : HumanNs(HistogramLowerNs(1 + octave * kHistogramSubBuckets));
    std::string blanks(std::max(0, 9 - DisplayWidth(from)), ' ');
    std::cout << "  " << blanks << from << " ┤"
              << Bar(static_cast<double>(count), static_cast<double>(largest), kBarWidth)
              << (count > 0 ? absl::StrCat(" ", HumanCount(count)) : "") << "\n";
  }
  std::cout << "\n";
}

void PrintSection(const char* title, v1::Dimension dimension,
                  const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows,
                  const Context& context, const v1::Summary& summary) {
  if (rows.empty()) return;
  std::cout << title << "\n";
  PrintRowsTable({dimension}, rows, summary, context.terminal, std::cout);
  std::cout << "\n";
}

void PrintVariants(const v1::Intent& intent) {
  std::cout << "Seen on " << intent.variants_size()
            << (intent.variants_size() == 1 ? " kernel" : " kernels") << "\n";
  for (const v1::IntentVariant& variant : intent.variants()) {
    std::cout << "  " << Printable(variant.kernel_release());
    if (!variant.vmlinux_build_id().empty())
      std::cout << "  build " << Hex(variant.vmlinux_build_id());
    std::cout << "\n";
    for (const v1::RawFrame& frame : variant.frames()) {
      std::cout << absl::StrFormat(
          "      %s+0x%x%s\n", frame.symbol().empty() ? "?" : Printable(frame.symbol()),
          frame.offset(),
          frame.module().empty() ? "" : absl::StrCat(" [", Printable(frame.module()), "]"));
    }
  }
}

void PrintTable(const Context& context, bool variants, const v1::GetIntentResponse& r) {
  std::cout << SummaryLines(r.summary(), context.terminal) << "\n";
  std::cout << "Intent " << Hex(r.intent().intent_id()) << " (short: " << Printable(r.short_id())
            << ")\n";
  if (!r.intent().modifier().empty())
    std::cout << "Writeback reason: " << Printable(r.intent().modifier()) << "\n";
  std::cout << "First seen " << HumanTime(r.first_seen_unix_ns()) << ", last seen "
            << HumanTime(r.last_seen_unix_ns()) << " UTC\n";
  if (r.intent().unsymbolized()) {
    std::cout << "! some frames have no name: the agent could not read kallsyms "
                 "(kernel.kptr_restrict, or CAP_SYSLOG missing)\n";
  }
  std::cout << "\nStack, innermost first\n";
  for (const std::string& frame : r.intent().frames())
    std::cout << "  " << Printable(frame) << "\n";
  std::cout << "\n";
  auto line = [](const char* role, const v1::Metrics& m) {
    std::cout << role << HumanBytes(static_cast<double>(m.bytes())) << " in " << HumanCount(m.ios())
              << " IOs on " << m.hosts() << (m.hosts() == 1 ? " host" : " hosts") << "\n";
  };
  line("As dirtier: ", r.as_dirtier());
  line("As issuer:  ", r.as_issuer());
  std::cout << "\n";
  const v1::Metrics& m = r.as_dirtier().ios() > 0 ? r.as_dirtier() : r.as_issuer();
  PrintHistogram("Wait in the queue", m.wait());
  PrintHistogram("IO in the device", m.io());
  PrintSection("Who", v1::DIMENSION_COMM, r.comms(), context, r.summary());
  PrintSection("Where", v1::DIMENSION_HOST, r.hosts(), context, r.summary());
  PrintSection("Devices", v1::DIMENSION_DEVICE, r.devices(), context, r.summary());
  PrintSection("Files", v1::DIMENSION_FILE, r.files(), context, r.summary());
  if (variants) {
    PrintVariants(r.intent());
  } else {
    std::cout << "Known on " << r.intent().variants_size()
              << (r.intent().variants_size() == 1 ? " kernel build" : " kernel builds")
              << ": --variants\n";
  }
}

Json RowsJson(const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows) {
  Json json = Json::array();
  for (const auto& row : rows) json.push_back(RowJson(row));
  return json;
}

Json VariantsJson(const v1::Intent& intent) {
  Json json = Json::array();
  for (const v1::IntentVariant& variant : intent.variants()) {
    Json entry;
    entry["kernel_release"] = variant.kernel_release();
    entry["vmlinux_build_id"] =
        variant.vmlinux_build_id().empty() ? Json() : Json(Hex(variant.vmlinux_build_id()));
    entry["frames"] = Json::array();
    for (const v1::RawFrame& frame : variant.frames()) {
      entry["frames"].push_back(
          {{"symbol", frame.symbol()}, {"module", frame.module()}, {"offset", frame.offset()}});
    }
    json.push_back(std::move(entry));
  }
  return json;
}

void PrintJson(const v1::GetIntentResponse& r) {
  Json json;
  json["summary"] = SummaryJson(r.summary());
  json["intent"] = Hex(r.intent().intent_id());
  json["short_id"] = r.short_id();
  json["reason"] = r.intent().modifier();
  json["frames"] = std::vector<std::string>(r.intent().frames().begin(), r.intent().frames().end());
  json["unsymbolized"] = r.intent().unsymbolized();
  json["first_seen"] = TimeJson(r.first_seen_unix_ns());
  json["last_seen"] = TimeJson(r.last_seen_unix_ns());
  json["as_dirtier"] = MetricsJson(r.as_dirtier());
  json["as_issuer"] = MetricsJson(r.as_issuer());
  json["by_host"] = RowsJson(r.hosts());
  json["by_comm"] = RowsJson(r.comms());
  json["by_device"] = RowsJson(r.devices());
  json["by_file"] = RowsJson(r.files());
  json["variants"] = VariantsJson(r.intent());
  Write(json, std::cout);
}

}  // namespace

void AddIntentCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("intent", "One intent: its stack, kernels, who and where");
  auto id = std::make_shared<std::string>();
  auto variants = std::make_shared<bool>(false);
  command->add_option("ID", *id, "intent id in hex, or a unique prefix of it")->required();
  command->add_flag("--variants", *variants, "show the raw frames on each kernel build");
  AddQueryFlags(command, context);
  command->callback([context, id, variants] {
    context->run = [context, id, variants] {
      v1::GetIntentRequest request;
      request.set_intent(*id);
      return RunQuery<v1::GetIntentRequest, v1::GetIntentResponse>(
          *context, request, &v1::Query::Stub::GetIntent, [&](const v1::GetIntentResponse& r) {
            if (context->output == Output::kJson) return PrintJson(r);
            if (context->output == Output::kCsv)
              return PrintRowsCsv({v1::DIMENSION_HOST}, r.hosts(), std::cout);
            PrintTable(*context, *variants, r);
          });
    };
  });
}

}  // namespace fleetblame::cli
