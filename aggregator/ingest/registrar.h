// SPDX-License-Identifier: Apache-2.0
//
// Registers agents in groups. Whoever says Hello while the committer is busy waits here with the
// others; one task then registers all of them, so that ten thousand new hosts share a few fsyncs
// and wait for no more than the write that is under way.
//
// Threading: Submit from any thread; clients are called on the committer's thread, without a lock
// held. What waits is bounded by the streams there may be: one Hello each.
#ifndef AGGREGATOR_INGEST_REGISTRAR_H_
#define AGGREGATOR_INGEST_REGISTRAR_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "aggregator/ingest/committer.h"
#include "aggregator/ingest/host_directory.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::aggregator {

// Somebody who wants to be registered.
class RegistrationClient {
 public:
  virtual ~RegistrationClient() = default;
  // What to register, when it still may be.
  virtual std::optional<HostRecord> BeginRegistration(const v1::Hello& hello, absl::Time now) = 0;
  // Follows every BeginRegistration that returned something.
  virtual void EndRegistration(absl::StatusOr<HostDirectory::Registered> registered) = 0;
};

class Registrar {
 public:
  // All must outlive it, and `committer` must have ended before it is destroyed.
  Registrar(Committer* committer, HostDirectory* hosts) : committer_(committer), hosts_(hosts) {}

  void Submit(std::shared_ptr<RegistrationClient> client, v1::Hello hello);

 private:
  struct Waiting {
    std::shared_ptr<RegistrationClient> client;
    v1::Hello hello;
  };
  void RegisterGroup();

  Committer* const committer_;
  HostDirectory* const hosts_;
  absl::Mutex mu_;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_REGISTRAR_H_
