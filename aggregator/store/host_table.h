// SPDX-License-Identifier: Apache-2.0
//
// The hosts of the fleet, all of them in memory.
//
// Threading: any thread; writes only under the append lock.
#ifndef AGGREGATOR_STORE_HOST_TABLE_H_
#define AGGREGATOR_STORE_HOST_TABLE_H_

#include <rocksdb/write_batch.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/store/database.h"

namespace fleetblame::aggregator {

class HostTable {
 public:
  explicit HostTable(const Database* database) : database_(database) {}
  absl::Status Load();

  // What the table will hold of these hosts: number and first_seen are the known ones. Adds them to
  // `batch`; Commit makes them visible once that was written.
  std::vector<HostRecord> Prepare(std::span<const HostRecord> hosts,
                                  rocksdb::WriteBatch* batch) const;
  void Commit(std::span<const HostRecord> prepared);
  // A batch that ends at this time came; written to `batch` at most once a minute.
  void NoteBatch(HostNumber host, uint64_t end_unix_ns, rocksdb::WriteBatch* batch);

  bool Has(HostNumber host) const;
  uint32_t count() const;
  std::vector<HostRecord> All() const;

 private:
  struct Entry {
    HostRecord record;
    uint64_t written_last_seen_unix_ns = 0;
  };
  const Database* const database_;
  mutable absl::Mutex mutex_;
  std::vector<Entry> hosts_ ABSL_GUARDED_BY(mutex_);  // by number - 1
  absl::flat_hash_map<std::string, HostNumber> numbers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_HOST_TABLE_H_
