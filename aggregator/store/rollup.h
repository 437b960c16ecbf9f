// SPDX-License-Identifier: Apache-2.0
//
// Makes one bucket of a rollup anew from the blocks that it is made of. Nothing is ever added to an
// old block, so doing it twice changes nothing, and late data needs no special care.
//
// When a minute of a host is summed up, its raw windows are rewritten as shares of the sum
// (window_split.h), in the same write, since they can then only be read together.
//
//   host,  1 min         from raw windows of that host
//   host,  10 min … 1 d  from the next finer level of that host
//   group, any level     from the blocks of its hosts at the same level: one block in which hosts
//                        are summed, and from 1 h on the rows by intent with their hosts
//
// Threading: Make belongs to one thread at a time; it only reads.
#ifndef AGGREGATOR_STORE_ROLLUP_H_
#define AGGREGATOR_STORE_ROLLUP_H_

#include <rocksdb/write_batch.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "aggregator/store/database.h"
#include "aggregator/store/dirty_marks.h"
#include "aggregator/store/interner.h"
#include "aggregator/store/point_reader.h"
#include "aggregator/store/row_merger.h"
#include "aggregator/store/window_split.h"

namespace fleetblame::aggregator {

class Rollup {
 public:
  Rollup(const Database* database, const Interner* interner, const RocksStoreOptions& options,
         ActorNumber other_actor)
      : database_(database), interner_(interner), options_(options), other_actor_(other_actor) {}

  // Adds the blocks of `bucket` to `batch`. `hosts` is the number of hosts there are.
  absl::Status Make(const Bucket& bucket, uint32_t hosts, PointReader* reader,
                    rocksdb::WriteBatch* batch);
  uint64_t rows_read() const { return rows_read_; }
  // Minutes of hosts whose windows were rewritten as shares, and those where that was not possible.
  // From any thread.
  uint64_t minutes_shared() const { return minutes_shared_.load(); }
  uint64_t minutes_kept() const { return minutes_kept_.load(); }

  RowMerger::Limits LimitsOf(Level level) const;

 private:
  absl::Status MakeHost(const Bucket& bucket, PointReader* reader, rocksdb::WriteBatch* batch);
  // Windows of a minute: as they stand in `windows_`, and what is stored of them so far.
  absl::Status ReadWindows(const Bucket& bucket, PointReader* reader);
  absl::Status MakeMinute(const Bucket& bucket, PointReader* reader, rocksdb::WriteBatch* batch);
  void RewriteWindows(const Bucket& bucket, const std::string& minute, rocksdb::WriteBatch* batch);
  absl::Status MakeBooks(const Bucket& bucket, PointReader* reader, rocksdb::WriteBatch* batch);
  absl::Status MakeGroup(const Bucket& bucket, uint32_t hosts, PointReader* reader,
                         rocksdb::WriteBatch* batch);

  const Database* const database_;
  const Interner* const interner_;
  const RocksStoreOptions options_;
  const ActorNumber other_actor_;
  RowMerger merger_;
  std::vector<SplitWindow> windows_;
  std::vector<std::string> window_keys_;
  bool split_ = false;  // some of the windows are stored as shares
  v1::RowBlock rows_;
  uint64_t rows_read_ = 0;
  std::atomic<uint64_t> minutes_shared_{0};
  std::atomic<uint64_t> minutes_kept_{0};
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROLLUP_H_
