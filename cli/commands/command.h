// SPDX-License-Identifier: Apache-2.0
//
// What every subcommand shares: connection, time range, host selector, limit and output format.
// A subcommand is a function Add...(app, context) that declares its flags and, when chosen, sets
// `context->run`. One thread.
#ifndef CLI_COMMANDS_COMMAND_H_
#define CLI_COMMANDS_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

enum class Output { kTable, kJson, kCsv };

struct Context {
  ClientOptions client;
  Terminal terminal;
  // Raw flag values, checked by the functions below.
  std::string since = "1h";
  std::string until = "now";
  std::string hosts;
  uint32_t limit = 20;
  Output output = Output::kTable;

  std::function<int()> run;
};

// --since, --until, --hosts, --limit, --output
void AddQueryFlags(CLI::App* command, Context* context);
// --hosts and --output only
void AddSelectorFlag(CLI::App* command, Context* context);
void AddOutputFlag(CLI::App* command, Context* context, bool csv = true);

absl::StatusOr<v1::TimeRange> RangeOf(const Context& context);

// Prints the sentence to stderr; exit code for wrong usage.
int ReportUsage(const absl::Status& status);

// Parses the range, fills selector and range of the request, calls, and hands the response to
// `print`; everything that can go wrong ends in the documented exit code.
template <typename Request, typename Response>
int RunQuery(const Context& context, Request request,
             grpc::Status (v1::Query::Stub::*call)(grpc::ClientContext*, const Request&, Response*),
             const std::function<void(const Response&)>& print) {
  auto range = RangeOf(context);
  if (!range.ok()) return ReportUsage(range.status());
  *request.mutable_range() = *range;
  request.set_selector(context.hosts);
  request.set_limit(context.limit);
  auto client = Client::Create(context.client);
  if (!client.ok()) return ReportUsage(client.status());
  auto rpc = (*client)->NewContext();
  Response response;
  grpc::Status status = ((*client)->query().*call)(rpc.get(), request, &response);
  if (!status.ok()) return ReportFailure(status, **client);
  print(response);
  return kExitOk;
}

void AddHostsCommand(CLI::App* app, Context* context);
void AddTopCommand(CLI::App* app, Context* context);
void AddIntentCommand(CLI::App* app, Context* context);
void AddSearchCommand(CLI::App* app, Context* context);
void AddSeriesCommand(CLI::App* app, Context* context);
void AddCompareCommand(CLI::App* app, Context* context);
void AddCoverageCommand(CLI::App* app, Context* context);
void AddTagsCommand(CLI::App* app, Context* context);
void AddTraceCommand(CLI::App* app, Context* context);
void AddControlCommand(CLI::App* app, Context* context);

}  // namespace fleetblame::cli

#endif  // CLI_COMMANDS_COMMAND_H_
