// SPDX-License-Identifier: Apache-2.0
//
// The hosts that are known, so that an agent that comes back unchanged costs no write: after a
// restart of the aggregator ten thousand of them do so at once.
//
// Threading: one thread (the committer's).
#ifndef AGGREGATOR_INGEST_HOST_DIRECTORY_H_
#define AGGREGATOR_INGEST_HOST_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/ingest/limits.h"
#include "aggregator/ingest/token_bucket.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

class HostDirectory {
 public:
  struct Registered {
    HostRecord host;  // with its number
    // When it was last heard of before; 0 for a new host.
    uint64_t previously_seen_unix_ns = 0;
    // Shared by all streams that this host ever opens.
    std::shared_ptr<TokenBucket> definitions;
  };

  // Reads the known hosts; `store` must outlive it.
  HostDirectory(Store* store, const IngestLimits& limits);

  // RESOURCE_EXHAUSTED for a new host beyond max_hosts, otherwise what the store says.
  absl::StatusOr<Registered> Register(HostRecord host, absl::Time now);

 private:
  struct Entry {
    HostRecord host;
    absl::Time written = absl::InfinitePast();
    std::shared_ptr<TokenBucket> definitions;
  };

  Store* const store_;
  const IngestLimits limits_;
  absl::flat_hash_map<std::string, Entry> hosts_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_HOST_DIRECTORY_H_
