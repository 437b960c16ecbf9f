// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame control`: what running agents watch and how long their windows are.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/time_spec.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

struct SetFlags {
  std::string name;
  std::vector<std::string> devices;
  bool all_devices = false;
  std::string window;
};

int Send(const Context& context, const v1::SetDirectivesRequest& request, const char* verb) {
  auto client = Client::Create(context.client);
  if (!client.ok()) return ReportUsage(client.status());
  auto rpc = (*client)->NewContext();
  v1::SetDirectivesResponse response;
  grpc::Status status = (*client)->control().SetDirectives(rpc.get(), request, &response);
  if (!status.ok()) return ReportFailure(status, **client);
  if (context.output == Output::kJson) {
    Json json;
    json["name"] = request.name();
    json["revision"] = response.revision();
    json["hosts_matched"] = response.hosts_matched();
    Write(json, std::cout);
  } else {
    std::cout << verb << " " << request.name() << "; " << response.hosts_matched()
              << (response.hosts_matched() == 1 ? " connected host matches"
                                                : " connected hosts match")
              << " now\n";
  }
  return kExitOk;
}

int Set(const Context& context, const SetFlags& flags) {
  v1::SetDirectivesRequest request;
  request.set_name(flags.name);
  request.set_selector(context.hosts);
  v1::Directives* directives = request.mutable_directives();
  if (flags.all_devices || !flags.devices.empty()) {
    v1::DeviceFilter* filter = directives->mutable_devices();
    for (const std::string& pattern : flags.devices) filter->add_patterns(pattern);
  }
  if (!flags.window.empty()) {
    auto window = ParseDuration(flags.window);
    if (!window.ok()) return ReportUsage(window.status());
    directives->set_window_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(*window)));
  }
  if (!directives->has_devices() && !directives->has_window_ns()) {
    return ReportUsage(
        absl::InvalidArgumentError("nothing to set; give --devices, --all-devices or --window"));
  }
  return Send(context, request, "set");
}

Json SetJson(const v1::ListDirectivesResponse::Set& set) {
  Json json;
  json["name"] = set.name();
  json["selector"] = set.selector();
  const v1::Directives& d = set.directives();
  json["devices"] = d.has_devices() ? Json(std::vector<std::string>(d.devices().patterns().begin(),
                                                                    d.devices().patterns().end()))
                                    : Json();
  json["window_ns"] = d.has_window_ns() ? Json(d.window_ns()) : Json();
  return json;
}

int List(const Context& context) {
  auto client = Client::Create(context.client);
  if (!client.ok()) return ReportUsage(client.status());
  auto rpc = (*client)->NewContext();
  v1::ListDirectivesResponse response;
  grpc::Status status = (*client)->control().ListDirectives(rpc.get(), {}, &response);
  if (!status.ok()) return ReportFailure(status, **client);
  if (context.output == Output::kJson) {
    Json json = Json::array();
    for (const auto& set : response.sets()) json.push_back(SetJson(set));
    Write(json, std::cout);
    return kExitOk;
  }
  Table table({{.title = "NAME", .align = Table::Align::kLeft},
               {.title = "HOSTS", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "DEVICES", .align = Table::Align::kLeft, .min_width = 12},
               {.title = "WINDOW"}});
  for (const auto& set : response.sets()) {
    const v1::Directives& d = set.directives();
    std::string devices = "as configured";
    if (d.has_devices())
      devices = d.devices().patterns().empty() ? "all" : absl::StrJoin(d.devices().patterns(), " ");
    table.AddRow({set.name(), set.selector().empty() ? "all" : set.selector(), devices,
                  d.has_window_ns() ? HumanSpan(d.window_ns()) : "as configured"});
  }
  table.Print(context.terminal, std::cout);
  return kExitOk;
}

}  // namespace

void AddControlCommand(CLI::App* app, Context* context) {
  CLI::App* control = app->add_subcommand("control", "What running agents watch");
  control->require_subcommand(1);

  CLI::App* set = control->add_subcommand(
      "set", "Set devices or window of the hosts that match; replaces a set of that name");
  auto flags = std::make_shared<SetFlags>();
  set->add_option("NAME", flags->name, "name of this set of directives, [a-z0-9-]")->required();
  AddSelectorFlag(set, context);
  CLI::Option* devices = set->add_option("--devices", flags->devices,
                                         "names, globs or MAJ:MIN; '!' before one takes it away")
                             ->delimiter(',')
                             ->type_name("LIST");
  set->add_flag("--all-devices", flags->all_devices, "watch every disk")->excludes(devices);
  set->add_option("--window", flags->window, "length of a window, 1s to 1h")->type_name("LENGTH");
  AddOutputFlag(set, context, /*csv=*/false);
  set->callback(
      [context, flags] { context->run = [context, flags] { return Set(*context, *flags); }; });

  CLI::App* clear = control->add_subcommand(
      "clear", "Remove a set; hosts go back to what they were configured for");
  auto name = std::make_shared<std::string>();
  clear->add_option("NAME", *name, "name of the set")->required();
  AddOutputFlag(clear, context, /*csv=*/false);
  clear->callback([context, name] {
    context->run = [context, name] {
      v1::SetDirectivesRequest request;
      request.set_name(*name);
      return Send(*context, request, "cleared");
    };
  });

  CLI::App* list = control->add_subcommand("list", "The sets in force");
  AddOutputFlag(list, context, /*csv=*/false);
  list->callback([context] { context->run = [context] { return List(*context); }; });
}

}  // namespace fleetblame::cli
