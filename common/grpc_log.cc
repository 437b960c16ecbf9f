// SPDX-License-Identifier: Apache-2.0
#include "common/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "common/log.h"

namespace fleetblame {
namespace {

// gRPC reports as errors what our own layers handle and report (a refused
// connection, a peer that speaks no HTTP/2), hence a level less.
LogLevel Level(gpr_log_severity severity) {
  return severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
}

void OnGrpcLog(gpr_log_func_args* args) {
  Log(Level(args->severity), "grpc",
      {{"detail", args->message}, {"file", args->file}, {"line", args->line}});
}

}  // namespace

void RouteGrpcLog() {
  gpr_set_log_function(OnGrpcLog);
  // gRPC's own default, which it sets only when it is first used.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

}  // namespace fleetblame
