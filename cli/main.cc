// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame`: the command that people type.
#include <grpc/support/log.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/commands/command.h"
#include "cli/terminal.h"
#include "cli/time_spec.h"
#include "common/parse_error.h"
#include "common/utf8.h"
#include "common/version.h"

namespace fleetblame::cli {
namespace {

constexpr const char* kFooter =
    "\nEvery table begins with what it rests on: time, hosts, how the blame was found, what is "
    "missing.\n"
    "Exit codes: 0 answered, 1 the query failed, 2 wrong usage, 3 the aggregator cannot be "
    "reached.\n"
    "Environment: FLEETBLAME_AGGREGATOR, NO_COLOR, COLUMNS. More: docs/cli.md\n";

void AddConnectionFlags(CLI::App* app, Context* context, std::string* timeout) {
  app->add_option("--aggregator", context->client.aggregator,
                  "address of the aggregator [default: 127.0.0.1:7443]")
      ->envname("FLEETBLAME_AGGREGATOR")
      ->type_name("HOST:PORT");
  app->add_option("--tls-ca", context->client.tls_ca,
                  "CA that signed the aggregator's certificate (turns TLS on)")
      ->type_name("PEM");
  app->add_option("--tls-cert", context->client.tls_cert, "certificate of this client (mTLS)")
      ->type_name("PEM");
  app->add_option("--tls-key", context->client.tls_key, "its key")->type_name("PEM");
  app->add_option("--tls-server-name", context->client.tls_server_name,
                  "name in the aggregator's certificate, if not its address")
      ->type_name("NAME");
  app->add_option("--timeout", *timeout, "give up after this long [default: 30s]")
      ->type_name("LENGTH");
}

// What gRPC logs of a failed connection stands in our own sentence already.
void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

// The library says of an unknown command only that one is required.
std::string Complaint(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;  // the command that was understood last
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  if (names.empty() || dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) {
    return ParseErrorSentence(error.what());
  }
  const std::string known = absl::StrJoin(names, ", ");
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  if (rest.empty()) return "give a command: " + known;
  return "'" + rest.front() + "' is no command; there are: " + known;
}

absl::Status CheckArguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (IsUtf8(argv[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", argv[i], "' is not UTF-8; names are kept with U+FFFD in place of bytes that are not"));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  SilenceGrpc();
  if (auto status = CheckArguments(argc, argv); !status.ok()) return ReportUsage(status);
  Context context;
  context.terminal = InitTerminal();
  CLI::App app("Who causes the disk IO of a fleet of servers, and why", "fleetblame");
  app.set_version_flag("--version", VersionLine("fleetblame"));
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // connection flags may stand after the subcommand too
  std::string timeout = "30s";
  AddConnectionFlags(&app, &context, &timeout);
  AddTopCommand(&app, &context);
  AddIntentCommand(&app, &context);
  AddCompareCommand(&app, &context);
  AddSearchCommand(&app, &context);
  AddSeriesCommand(&app, &context);
  AddHostsCommand(&app, &context);
  AddCoverageCommand(&app, &context);
  AddTagsCommand(&app, &context);
  AddTraceCommand(&app, &context);
  AddControlCommand(&app, &context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with code 0 to this library.
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "fleetblame: " << Complaint(app, error) << "\nRun fleetblame --help for more.\n";
    return kExitUsage;
  }
  auto limit = ParseDuration(timeout);
  if (!limit.ok()) return ReportUsage(limit.status());
  context.client.timeout = *limit;
  int code = context.run();
  std::cout << std::flush;
  return code;
}

}  // namespace
}  // namespace fleetblame::cli

int main(int argc, char** argv) { return fleetblame::cli::Main(argc, argv); }
