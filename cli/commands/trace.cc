// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame trace`: single IOs as they finish, from chosen hosts.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/interrupt.h"
#include "cli/names.h"
#include "cli/rows_table.h"
#include "cli/time_spec.h"
#include "cli/units.h"
#include "common/absl_view.h"

namespace fleetblame::cli {
namespace {

struct TraceFlags {
  std::string duration = "60s";
  std::string slower;
  std::vector<std::string> operations, devices;
  uint32_t max_hosts = 10;
  uint64_t max_rate = 0;
};

absl::StatusOr<v1::TraceRequest> BuildRequest(const Context& context, const TraceFlags& flags) {
  v1::TraceRequest request;
  request.set_selector(context.hosts);
  request.set_max_hosts(flags.max_hosts);
  request.set_max_events_per_second_per_host(flags.max_rate);
  auto duration = ParseDuration(flags.duration);
  if (!duration.ok()) return duration.status();
  request.set_max_duration_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(*duration)));
  if (!flags.slower.empty()) {
    auto slower = ParseDuration(flags.slower);
    if (!slower.ok()) return slower.status();
    request.set_min_total_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(*slower)));
  }
  for (const std::string& word : flags.operations) {
    auto operation = ParseOperation(word);
    if (!operation.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--op: ", operation.status().message()));
    }
    request.add_operations(*operation);
  }
  for (const std::string& device : flags.devices) request.add_devices(device);
  return request;
}

std::string Who(const v1::Actor& actor, uint32_t tid) {
  std::string name = actor.comm().empty() ? "?" : Printable(actor.comm());
  return tid == 0 ? name : absl::StrCat(name, "/", tid);
}

void PrintHeader() {
  std::cout << "TIME(UTC)     HOST          DEVICE    RWBS        SECTOR     BYTES     WAIT       "
               "IO  DIRTIER              "
               "ISSUER               CONFIDENCE  WHY\n";
}

void PrintLine(const v1::TraceResponse& response, const v1::TraceEvent& e) {
  std::string time =
      absl::FormatTime("%H:%M:%E6S", absl::FromUnixNanos(static_cast<int64_t>(e.time_unix_ns())),
                       absl::UTCTimeZone())
          .substr(0, 12);
  // µ takes two bytes but one column.
  auto duration = [](uint64_t ns) {
    std::string text = HumanNs(ns);
    return std::string(std::max(0, 7 - DisplayWidth(text)), ' ') + text;
  };
  std::string why = Printable(FramesSummary(e.dirtier_frames()));
  if (!e.modifier().empty()) absl::StrAppend(&why, " (", Printable(e.modifier()), ")");
  if (!e.file().path().empty()) absl::StrAppend(&why, "  ", Printable(e.file().path()));
  if (e.error() != 0) absl::StrAppend(&why, "  error ", e.error());
  if (e.other_bytes() != 0)
    absl::StrAppend(&why, "  +", HumanBytes(static_cast<double>(e.other_bytes())), " of others");
  std::cout << absl::StrFormat(
      "%-12s  %-12s  %-8s  %-5s %12d  %8d  %s  %s  %-19s  %-19s  %-10s  %s\n", time,
      Truncate(Printable(response.hostname()), 12), Printable(e.device()), Printable(e.rwbs()),
      e.sector(), e.bytes(), duration(e.wait_ns()), duration(e.io_ns()),
      Who(e.dirtier(), e.dirtier_tid()), Who(e.issuer(), e.issuer_tid()),
      ToAbsl(ConfidenceName(e.confidence())), why);
}

Json ActorJson(const v1::Actor& actor, uint32_t tid) {
  Json json;
  json["comm"] = actor.comm();
  json["cgroup"] = actor.cgroup().empty() ? Json() : Json(actor.cgroup());
  json["tid"] = tid == 0 ? Json() : Json(tid);
  json["kernel_thread"] = actor.kernel_thread();
  return json;
}

// One object a line, so that the output can be piped into jq while it runs.
void PrintJsonLine(const v1::TraceResponse& response, const v1::TraceEvent& e) {
  Json json;
  json["time_unix_ns"] = e.time_unix_ns();
  json["host"] = response.hostname();
  json["host_id"] = response.host_id();
  json["device"] = e.device();
  json["sector"] = e.sector();
  json["bytes"] = e.bytes();
  json["op"] = OperationName(e.operation());
  json["rwbs"] = e.rwbs();
  json["wait_ns"] = e.wait_ns();
  json["io_ns"] = e.io_ns();
  json["error"] = e.error();
  json["confidence"] = ConfidenceName(e.confidence());
  json["dirtier"] = ActorJson(e.dirtier(), e.dirtier_tid());
  json["issuer"] = ActorJson(e.issuer(), e.issuer_tid());
  json["dirtier_intent"] = Hex(e.dirtier_intent_id());
  json["issuer_intent"] = Hex(e.issuer_intent_id());
  json["frames"] = std::vector<std::string>(e.dirtier_frames().begin(), e.dirtier_frames().end());
  json["reason"] = e.modifier();
  json["file"] = e.file().path().empty() ? Json() : Json(e.file().path());
  json["inode"] = e.file().inode() == 0 ? Json() : Json(e.file().inode());
  json["requeues"] = e.requeues();
  json["merged_bios"] = e.merged_bios();
  json["other_bytes"] = e.other_bytes();
  Write(json, std::cout, -1);
}

int Run(const Context& context, const TraceFlags& flags) {
  auto request = BuildRequest(context, flags);
  if (!request.ok()) return ReportUsage(request.status());
  auto client = Client::Create(context.client);
  if (!client.ok()) return ReportUsage(client.status());
  auto rpc = (*client)->NewContext(false);
  CancelOnSignal cancel(rpc.get());
  auto reader = (*client)->query().Trace(rpc.get(), *request);
  v1::TraceResponse response;
  uint64_t dropped = 0;
  bool header = false;
  while (reader->Read(&response)) {
    if (response.hosts_size() > 0) {
      std::cerr << "tracing " << response.hosts_size()
                << (response.hosts_size() == 1 ? " host: " : " hosts: ")
                << Printable(absl::StrJoin(response.hosts(), ", ")) << "; Ctrl-C ends it\n";
    }
    if (context.output == Output::kTable && !header) {
      PrintHeader();
      header = true;
    }
    for (const v1::TraceEvent& event : response.events()) {
      context.output == Output::kJson ? PrintJsonLine(response, event) : PrintLine(response, event);
    }
    if (response.dropped() > 0) {
      dropped += response.dropped();
      std::cerr << "! " << HumanCount(response.dropped()) << " events of "
                << Printable(response.hostname()) << " were too many and are missing here\n";
    }
    std::cout << std::flush;
    if (!std::cout) rpc->TryCancel();  // the reader of our pipe went away
  }
  grpc::Status status = reader->Finish();
  if (dropped > 0)
    std::cerr << HumanCount(dropped)
              << " events are missing in all; --slower, --op or --device narrow it\n";
  if (status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) return kExitOk;
  return ReportFailure(status, **client);
}

}  // namespace

void AddTraceCommand(CLI::App* app, Context* context) {
  CLI::App* command = app->add_subcommand("trace", "Single IOs as they finish, from chosen hosts");
  auto flags = std::make_shared<TraceFlags>();
  AddSelectorFlag(command, context);
  command->add_option("--for", flags->duration, "end after this long, at most 1h [default: 60s]")
      ->type_name("LENGTH");
  command
      ->add_option("--slower", flags->slower,
                   "only IOs whose wait and io time sum to at least this")
      ->type_name("LENGTH");
  command->add_option("--op", flags->operations, "only read, write, discard, flush, ...")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--device", flags->devices, "only these devices")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--max-hosts", flags->max_hosts, "refuse when more hosts match [default: 10]")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--max-rate", flags->max_rate,
                   "IOs a second and host; more are dropped and counted")
      ->check(CLI::Range(1, 10'000'000));
  AddOutputFlag(command, context, /*csv=*/false);
  command->callback(
      [context, flags] { context->run = [context, flags] { return Run(*context, *flags); }; });
}

}  // namespace fleetblame::cli
