// SPDX-License-Identifier: Apache-2.0
//
// The aggregator put together: store, ingest, control, queries, health, reflection, metrics,
// upkeep.
//
// Threading: start, use and shut down from one thread.
#ifndef AGGREGATOR_SERVER_AGGREGATOR_SERVER_H_
#define AGGREGATOR_SERVER_AGGREGATOR_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/server/config.h"
#include "aggregator/server/exit_code.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

struct StartError {
  ExitCode exit_code = kExitFailure;
  absl::Status status;
};

class AggregatorServer {
 public:
  // Nothing, with `*error` filled, when it cannot serve. Port 0 in the config takes a free one.
  static std::unique_ptr<AggregatorServer> Start(const ServerConfig& config, StartError* error);
  // The same over a store that is open already (tests).
  static std::unique_ptr<AggregatorServer> StartWith(std::unique_ptr<Store> store,
                                                     const ServerConfig& config, StartError* error);
  virtual ~AggregatorServer() = default;

  virtual int port() const = 0;
  virtual int metrics_port() const = 0;  // 0 without metrics

  // Ends streams and queries, makes durable what was received, closes the store. Idempotent; the
  // destructor does it too.
  virtual void ShutDown() = 0;
};

// Whether Start would succeed, as far as can be told without disturbing a running aggregator.
// Returns kExitOk or fills `*status`.
ExitCode CheckStart(const ServerConfig& config, absl::Status* status);

// Salvages the damaged store in config.data_dir; nobody may have it open.
absl::Status RepairStore(const ServerConfig& config);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_SERVER_AGGREGATOR_SERVER_H_
