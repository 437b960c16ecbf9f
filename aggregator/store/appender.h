// SPDX-License-Identifier: Apache-2.0
//
// Turns batches into one database write: refuses what is double, out of order or malformed, asks
// for definitions that are missing, translates the agent's numbers, places rows, books and gaps
// under their keys and marks the rollups that become stale.
//
// A window older than what retention keeps at its resolution is summed into the finest rollup that
// is still held; older still, it is counted and dropped.
//
// Threading: only under the append lock.
#ifndef AGGREGATOR_STORE_APPENDER_H_
#define AGGREGATOR_STORE_APPENDER_H_

#include <rocksdb/write_batch.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/store/books.h"
#include "aggregator/store/cover.h"
#include "aggregator/store/database.h"
#include "aggregator/store/dictionaries.h"
#include "aggregator/store/dirty_marks.h"
#include "aggregator/store/high_water.h"
#include "aggregator/store/host_table.h"
#include "aggregator/store/intent_seen.h"
#include "aggregator/store/interner.h"
#include "aggregator/store/rollup.h"
#include "aggregator/store/row_merger.h"
#include "aggregator/store/store.h"
#include "aggregator/store/tag_wait_sums.h"

namespace fleetblame::aggregator {

struct AppendSources {
  const Database* database = nullptr;
  Interner* interner = nullptr;
  Dictionaries* dictionaries = nullptr;
  HostTable* hosts = nullptr;
  IntentSeenTable* intent_seen = nullptr;
  DirtyMarks* dirty = nullptr;
  HighWater* high_water = nullptr;
  const Rollup* rollup = nullptr;
};

// One write. Either Commit or Abandon ends it.
class Appender {
 public:
  Appender(const AppendSources& sources, const Horizons& horizons, uint64_t now_unix_ns,
           int64_t now_ns)
      : s_(sources), horizons_(horizons), now_unix_ns_(now_unix_ns), now_ns_(now_ns) {}

  // An error status (database cannot be read) spoils the whole write.
  absl::StatusOr<AppendResult> Add(const IncomingBatch& in);
  absl::Status AddDefinitions(HostNumber host, const v1::Definitions& definitions);
  void AddGap(HostNumber host, const v1::Gap& gap);

  // Completes the write; it is ready to be written then.
  absl::StatusOr<rocksdb::WriteBatch*> Finish();
  void Commit();
  void Abandon();

  uint64_t rows() const { return rows_; }
  uint64_t tag_wait_rows() const { return tag_wait_rows_; }
  // Both kinds.
  uint64_t too_old_rows() const { return too_old_rows_; }
  // Bounds of what was placed; first > last when nothing was.
  uint64_t first_unix_ns() const { return first_unix_ns_; }
  uint64_t last_unix_ns() const { return last_unix_ns_; }

 private:
  struct Times {
    uint64_t start_unix_ns = 0;
    uint64_t end_unix_ns = 0;
  };
  // What is summed into a block of a rollup instead of standing alone.
  struct Late {
    RowMerger rows;
    CoverageSums coverage;
    LossSums losses;
    TagWaitSums tag_waits;
  };
  using LateKey = std::tuple<Level, HostNumber, uint64_t>;  // level, host, last_ns

  absl::StatusOr<Times> TimesOf(const v1::Window& window) const;
  absl::Status CollectNeed(const Dictionaries::Scope& scope, const IncomingBatch& in,
                           v1::Need* need);
  absl::Status Intern(const Dictionaries::Scope& scope, const v1::Definitions& definitions);
  absl::Status Translate(const Dictionaries::Scope& scope, DefinitionKind kind,
                         google::protobuf::RepeatedField<uint32_t>* numbers);
  absl::StatusOr<v1::TagWaits> TranslateTagWaits(const Dictionaries::Scope& scope,
                                                 const v1::TagWaits& in);
  absl::Status Place(const IncomingBatch& in, const Dictionaries::Scope& scope, const Times& times);
  absl::Status PlaceLate(Level level, const IncomingBatch& in, uint64_t last_ns,
                         const stored::Coverage& coverage, const v1::TagWaits& tag_waits);
  absl::Status LoadLate(const LateKey& key, Late* late);
  void MarkStale(HostNumber host, uint64_t last_ns, Level placed);

  const AppendSources s_;
  const Horizons horizons_;
  const uint64_t now_unix_ns_;
  const int64_t now_ns_;
  rocksdb::WriteBatch batch_;
  absl::flat_hash_set<HostNumber> blocked_hosts_;  // an earlier batch of theirs was not taken
  std::vector<Bucket> new_marks_;
  std::map<LateKey, Late> late_;
  v1::RowBlock translated_;
  uint64_t rows_ = 0;
  uint64_t tag_wait_rows_ = 0;
  uint64_t too_old_rows_ = 0;
  uint64_t first_unix_ns_ = UINT64_MAX;
  uint64_t last_unix_ns_ = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_APPENDER_H_
