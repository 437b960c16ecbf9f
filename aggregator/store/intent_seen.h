// SPDX-License-Identifier: Apache-2.0
//
// When each intent was seen first and last. Exact in memory; on disk the end may lag by a minute,
// which is all that a crash can cost.
//
// Threading: any thread; Note only under the append lock.
#ifndef AGGREGATOR_STORE_INTENT_SEEN_H_
#define AGGREGATOR_STORE_INTENT_SEEN_H_

#include <rocksdb/write_batch.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/store/database.h"

namespace fleetblame::aggregator {

class IntentSeenTable {
 public:
  explicit IntentSeenTable(const Database* database) : database_(database) {}
  absl::Status Load();

  void Note(IntentNumber intent, uint64_t start_unix_ns, uint64_t end_unix_ns,
            rocksdb::WriteBatch* batch);
  // Zeroes for an intent that was never seen in a row.
  ReadView::SeenSpan Get(IntentNumber intent) const;

 private:
  struct Entry {
    ReadView::SeenSpan span;
    uint64_t written_last_unix_ns = 0;
  };
  const Database* const database_;
  mutable absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by number
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_INTENT_SEEN_H_
