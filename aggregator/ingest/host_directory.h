// SPDX-License-Identifier: Apache-2.0
//
// The hosts that are known, so that an agent that comes back unchanged costs no write: after a
// restart of the aggregator ten thousand of them do so at once. Those that do need one share it.
//
// Threading: one thread (the committer's).
#ifndef AGGREGATOR_INGEST_HOST_DIRECTORY_H_
#define AGGREGATOR_INGEST_HOST_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

  // One result a host, in their order, each durable when it is OK. RESOURCE_EXHAUSTED for a new
  // host beyond max_hosts, otherwise what the store says. A host may come twice.
  std::vector<absl::StatusOr<Registered>> Register(std::vector<HostRecord> hosts, absl::Time now);

  // What the host was called when it last registered; empty for one that is not known.
  std::string HostnameOf(const std::string& host_id) const;

 private:
  struct Entry {
    HostRecord host;
    absl::Time written = absl::InfinitePast();
    std::shared_ptr<TokenBucket> definitions;
  };

  std::shared_ptr<TokenBucket> NewBucket() const;
  // Completes `host` from what is known of it and says whether it must be written.
  bool Complete(HostRecord* host, absl::Time now) const;
  Registered Remember(HostRecord host, bool written, absl::Time now);
  // New hosts in `hosts` that the limit leaves no place for get a status.
  std::vector<absl::Status> Admit(const std::vector<HostRecord>& hosts) const;

  Store* const store_;
  const IngestLimits limits_;
  absl::flat_hash_map<std::string, Entry> hosts_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_HOST_DIRECTORY_H_
