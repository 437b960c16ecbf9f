// SPDX-License-Identifier: Apache-2.0
//
// fleetblame-aggregator: reads its settings, serves until SIGTERM or SIGINT, ends cleanly.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "aggregator/server/aggregator_server.h"
#include "aggregator/server/config.h"
#include "aggregator/server/exit_code.h"
#include "common/grpc_log.h"
#include "common/log.h"
#include "common/version.h"
#include "google/protobuf/stubs/logging.h"

namespace fleetblame::aggregator {
namespace {

// Before the first thread, so that all inherit it and only Await sees them.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

const char* AwaitSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) == EINTR) {
  }
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

// One descriptor an agent: take what we may have.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    LogWarning("cannot raise the limit of open files", {{"error", std::strerror(errno)}});
  }
}

int Check(const ServerConfig& config) {
  absl::Status status;
  ExitCode code = CheckStart(config, &status);
  if (code == kExitOk) {
    LogInfo("the configuration is good",
            {{"listen", config.listen}, {"data_dir", config.data_dir}});
  } else {
    LogError("the aggregator would not start", {{"error", status}, {"exit_code", int{code}}});
  }
  return code;
}

int Repair(const ServerConfig& config) {
  absl::Status status = RepairStore(config);
  if (!status.ok()) {
    LogError("the store could not be repaired", {{"error", status}});
    return kExitStore;
  }
  LogInfo("the store is repaired; what could not be read is kept in its folder lost/",
          {{"data_dir", config.data_dir}});
  return kExitOk;
}

int Serve(const ServerConfig& config) {
  sigset_t signals = BlockSignals();
  RaiseFileLimit();
  StartError error;
  std::unique_ptr<AggregatorServer> server = AggregatorServer::Start(config, &error);
  if (server == nullptr) {
    LogError("the aggregator cannot start",
             {{"error", error.status}, {"exit_code", int{error.exit_code}}});
    return error.exit_code;
  }
  LogInfo("the aggregator serves", {{"listen", config.listen},
                                    {"port", server->port()},
                                    {"metrics_port", server->metrics_port()},
                                    {"data_dir", config.data_dir},
                                    {"tls", !config.tls_cert.empty()},
                                    {"client_certificates", !config.tls_client_ca.empty()},
                                    {"version", kVersion}});
  const char* signal = AwaitSignal(signals);
  LogInfo("the aggregator ends", {{"signal", signal}});
  server->ShutDown();
  LogInfo("the aggregator has ended");
  return kExitOk;
}

// A peer decides how often protobuf has something to say about its texts: what matters of it is
// counted and answered where it is parsed.
void DropProtobufLog(google::protobuf::LogLevel, const char*, int, const std::string&) {}

int Main(int argc, char** argv) {
  CommandLine line = ParseCommandLine(argc, argv);
  if (line.exit_code >= 0) return line.exit_code;
  InitLogging({.level = line.config.log_level, .format = line.config.log_format});
  // Buffers of a batch's size come and go thousands of times a second; without this the allocator
  // gives their pages back to the kernel and fetches them again each time.
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  // Debian's Abseil looks for lock cycles at each lock; the sanitizer builds do that for us.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  RouteGrpcLog();
  google::protobuf::SetLogHandler(DropProtobufLog);
  int code = line.config.check    ? Check(line.config)
             : line.config.repair ? Repair(line.config)
                                  : Serve(line.config);
  FlushLog();
  return code;
}

}  // namespace
}  // namespace fleetblame::aggregator

int main(int argc, char** argv) { return fleetblame::aggregator::Main(argc, argv); }
