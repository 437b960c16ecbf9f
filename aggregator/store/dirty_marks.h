// SPDX-License-Identifier: Apache-2.0
//
// Which buckets of which rollups are stale. A bucket is marked in the same write as the rows that
// make it stale, and the mark goes in the same write as the block that is right again, so after a
// crash at any point each block is either right or marked. Memory mirrors what is on disk.
//
// Order of things, on which readers rely: a mark stands in memory before its write begins and is
// cleared in memory after its removal was written. Whoever copies the marks (Copy) and takes a
// database snapshot, in this order and under the store's state lock, may see a mark too many but
// never one too few.
//
// Threading: all methods from any thread; Mark, Unmark and Clear only under the append lock.
#ifndef AGGREGATOR_STORE_DIRTY_MARKS_H_
#define AGGREGATOR_STORE_DIRTY_MARKS_H_

#include <rocksdb/write_batch.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/store/database.h"

namespace fleetblame::aggregator {

// What is rolled up: one host, or a group of hosts together.
enum class UnitKind : uint8_t { kHost = 0, kGroup = 1 };

struct Bucket {
  Level level = Level::k1m;
  UnitKind unit_kind = UnitKind::kHost;
  uint32_t unit = 0;
  uint64_t start_unix_ns = 0;
  bool operator==(const Bucket&) const = default;
};

// The marks at one moment.
class DirtyCopy {
 public:
  // Starts of the stale buckets in [from, to), ascending.
  std::span<const uint64_t> Stale(Level level, UnitKind kind, uint32_t unit, uint64_t from,
                                  uint64_t to) const;

 private:
  friend class DirtyMarks;
  struct List {
    std::vector<uint32_t> units;  // ascending; starts[begins[i]..begins[i+1]) belong to units[i]
    std::vector<uint32_t> begins;
    std::vector<uint64_t> starts;
  };
  std::array<std::array<List, 2>, kLevels> lists_;
};

class DirtyMarks {
 public:
  explicit DirtyMarks(const Database* database) : database_(database) {}
  absl::Status Load();

  // Marks a bucket and adds the mark to `batch` unless it is there. True when it is new.
  bool Mark(const Bucket& bucket, int64_t now_ns, rocksdb::WriteBatch* batch);
  // Takes back a new mark whose write failed.
  void Unmark(const Bucket& bucket);

  struct Claim {
    Bucket bucket;
    uint64_t generation = 0;
  };
  // Stale buckets that ended at or before `closed_before_unix_ns` and were last touched at or
  // before `settled_before_ns` (the clock of Mark), oldest first.
  std::vector<Claim> Collect(Level level, UnitKind kind, uint64_t closed_before_unix_ns,
                             int64_t settled_before_ns, size_t limit) const;
  // Whether nothing was marked since.
  bool Unchanged(const Claim& claim) const;
  static void AddRemoval(const Database& database, const Bucket& bucket,
                         rocksdb::WriteBatch* batch);
  void Clear(const Bucket& bucket);

  bool Has(const Bucket& bucket) const;
  // Start of the oldest stale bucket; UINT64_MAX when there is none.
  uint64_t Oldest(Level level, UnitKind kind) const;
  size_t size() const;
  std::shared_ptr<const DirtyCopy> Copy() const;
  // Grows with each bucket that becomes stale.
  uint64_t version() const { return version_.load(); }

 private:
  struct State {
    uint64_t generation = 0;
    int64_t touched_ns = 0;
  };
  using Map = absl::btree_map<std::pair<uint64_t, uint32_t>, State>;  // (start, unit)
  Map& MapOf(Level level, UnitKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return maps_[static_cast<size_t>(level)][static_cast<size_t>(kind)];
  }
  const Map& MapOf(Level level, UnitKind kind) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return maps_[static_cast<size_t>(level)][static_cast<size_t>(kind)];
  }

  const Database* const database_;
  std::atomic<uint64_t> version_{0};
  mutable absl::Mutex mutex_;
  std::array<std::array<Map, 2>, kLevels> maps_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_generation_ ABSL_GUARDED_BY(mutex_) = 1;
  mutable std::shared_ptr<const DirtyCopy> copy_ ABSL_GUARDED_BY(mutex_);  // null: outdated
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_DIRTY_MARKS_H_
