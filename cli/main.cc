// SPDX-License-Identifier: Apache-2.0
//
// `fleetblame`: the command that people type.
#include <iostream>

#include "absl/time/time.h"
#include "cli/commands/command.h"
#include "cli/time_spec.h"
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

int Main(int argc, char** argv) {
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
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
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
