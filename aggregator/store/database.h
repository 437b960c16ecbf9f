// SPDX-License-Identifier: Apache-2.0
//
// The RocksDB instance: which column families there are, how each is tuned, and how the directory
// is opened, refused or repaired.
//
// Threading: open once; then any thread, as RocksDB.
#ifndef AGGREGATOR_STORE_DATABASE_H_
#define AGGREGATOR_STORE_DATABASE_H_

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/write_buffer_manager.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/store/rocks_store.h"

namespace fleetblame::aggregator {

// Format of everything below the directory; a store with a larger number is refused.
inline constexpr int kStoreFormatVersion = 2;

// In the order of their handles.
enum class Family : int {
  kMeta = 0,      // "default"
  kDefinitions,   // (kind, number) to content
  kIndex,         // (kind, content) to number
  kDictionaries,  // (host, dictionary, kind, agent's number) to number
  kDirty,         // marks on buckets whose rollup is stale
  kGaps,
  kPointsRaw,  // kPointsRaw + level
  kPoints1m,
  kPoints10m,
  kPoints1h,
  kPoints6h,
  kPoints1d,
  kCount,
};
inline Family PointsFamily(Level level) {
  return static_cast<Family>(static_cast<int>(Family::kPointsRaw) + static_cast<int>(level));
}

class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const RocksStoreOptions& options);
  static absl::Status Repair(const RocksStoreOptions& options);
  ~Database();

  rocksdb::DB* db() const { return db_.get(); }
  rocksdb::ColumnFamilyHandle* family(Family family) const {
    return handles_[static_cast<size_t>(family)];
  }
  const std::string& path() const { return path_; }

  // Writes memtables out and compacts every family down to its last level.
  absl::Status Compact();

  // NOT_FOUND without a sentence is usual, so `*found` tells; a missing key is no error.
  absl::Status Get(Family family, std::string_view key, std::string* value, bool* found) const;

 private:
  Database() = default;

  std::string path_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::shared_ptr<rocksdb::Cache> cache_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_DATABASE_H_
