// SPDX-License-Identifier: Apache-2.0
//
// Walks the points of one unit over time, across partitions.
//
// Threading: belongs to one thread. The snapshot must outlive it.
#ifndef AGGREGATOR_STORE_POINT_READER_H_
#define AGGREGATOR_STORE_POINT_READER_H_

#include <rocksdb/iterator.h>
#include <rocksdb/snapshot.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "aggregator/store/database.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/window_split.h"

namespace fleetblame::aggregator {

class PointReader {
 public:
  PointReader(const Database* database, const rocksdb::Snapshot* snapshot)
      : database_(database), snapshot_(snapshot) {}

  // Points whose last instant lies in [from, to), in order of time. Return false to stop.
  using Sink = absl::FunctionRef<bool(const PointKey& key, std::string_view value)>;
  absl::Status Scan(Level level, PointKind kind, uint32_t unit, uint64_t from_unix_ns,
                    uint64_t to_unix_ns, Sink sink);

  // The same for several units, increasing, one after the other. Where most of them have no points
  // of this kind it is much faster than asking for each.
  absl::Status ScanUnits(Level level, PointKind kind, std::span<const uint32_t> units,
                         uint64_t from_unix_ns, uint64_t to_unix_ns, Sink sink);

 private:
  rocksdb::Iterator* IteratorOf(Level level);

  const Database* const database_;
  const rocksdb::Snapshot* const snapshot_;
  std::array<std::unique_ptr<rocksdb::Iterator>, kLevels> iterators_;
};

// Reads windows that stand as shares of their minute's block (window_split.h), which is looked up;
// `key` is the value's own. What is being scanned at kRaw goes on undisturbed.
absl::Status ReadWindowSplit(std::string_view value, const PointKey& key, PointReader* reader,
                             std::vector<SplitWindow>* windows);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_POINT_READER_H_
