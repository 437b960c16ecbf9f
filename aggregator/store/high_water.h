// SPDX-License-Identifier: Apache-2.0
//
// The highest durable sequence number of each (host, spool epoch): what makes a batch that comes
// twice count once. It goes to disk in the same write as the batch.
//
// Threading: Durable from any thread; the rest only under the append lock.
#ifndef AGGREGATOR_STORE_HIGH_WATER_H_
#define AGGREGATOR_STORE_HIGH_WATER_H_

#include <rocksdb/write_batch.h>

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/store/database.h"

namespace fleetblame::aggregator {

class HighWater {
 public:
  explicit HighWater(const Database* database) : database_(database) {}

  // What is on disk.
  absl::StatusOr<uint64_t> Durable(HostNumber host, uint64_t spool_epoch) const;

  // What will be on disk after the write under way.
  absl::StatusOr<uint64_t> Current(HostNumber host, uint64_t spool_epoch);
  void Raise(HostNumber host, uint64_t spool_epoch, uint64_t seq);
  // Adds the marks raised since the last Commit or Abandon to the write.
  void AddTo(rocksdb::WriteBatch* batch) const;
  void Commit();
  void Abandon();

 private:
  using Key = std::pair<HostNumber, uint64_t>;

  const Database* const database_;
  absl::flat_hash_map<Key, uint64_t> cache_;  // as on disk; emptied when full
  absl::flat_hash_map<Key, uint64_t> raised_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_HIGH_WATER_H_
