// SPDX-License-Identifier: Apache-2.0
//
// Forgetting: whole partitions of points whose time is over, and gaps one by one (they are few).
//
// Threading: as each function says.
#ifndef AGGREGATOR_STORE_RETENTION_H_
#define AGGREGATOR_STORE_RETENTION_H_

#include <rocksdb/write_batch.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/store/cover.h"
#include "aggregator/store/database.h"
#include "aggregator/store/dirty_marks.h"

namespace fleetblame::aggregator {

absl::StatusOr<Horizons> LoadHorizons(const Database& database);

// The horizon that `level` may have now: partitions that end before now - retention go, unless a
// rollup is still to be made from them. Never below the present one.
uint64_t NextHorizon(Level level, const RocksStoreOptions& options, uint64_t now_unix_ns,
                     const Horizons& present, const DirtyMarks& dirty);

// Removes points of `level` before `horizon`; nobody may look for them any more. Any thread.
absl::Status DropPointsBefore(const Database& database, Level level, uint64_t horizon);

// Adds to `batch` the removal of gaps that ended before `end_unix_ns`.
absl::Status DropGapsBefore(const Database& database, uint64_t end_unix_ns,
                            rocksdb::WriteBatch* batch);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_RETENTION_H_
