// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/intent_seen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/rocks_status.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kWriteEveryNs = 60'000'000'000;

}  // namespace

absl::Status IntentSeenTable::Load() {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<rocksdb::Iterator> at(
      database_->db()->NewIterator(rocksdb::ReadOptions(), database_->family(Family::kMeta)));
  std::string prefix = IntentSeenPrefix();
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    std::string_view key = FromSlice(at->key()).substr(prefix.size());
    std::string_view value = FromSlice(at->value());
    uint32_t number = 0;
    Entry entry;
    if (!TakeBigEndian32(&key, &number) || !TakeBigEndian64(&value, &entry.span.first_unix_ns) ||
        !TakeBigEndian64(&value, &entry.span.last_unix_ns)) {
      continue;  // worth no more than a date
    }
    entry.written_last_unix_ns = entry.span.last_unix_ns;
    if (entries_.size() <= number) entries_.resize(number + 1);
    entries_[number] = entry;
  }
  return FromRocks(at->status(), absl::StrCat("read intents of store ", database_->path()));
}

void IntentSeenTable::Note(IntentNumber intent, uint64_t start_unix_ns, uint64_t end_unix_ns,
                           rocksdb::WriteBatch* batch) {
  absl::MutexLock lock(&mutex_);
  if (entries_.size() <= intent) entries_.resize(intent + 1);
  Entry& entry = entries_[intent];
  bool write = false;
  if (entry.span.first_unix_ns == 0 || start_unix_ns < entry.span.first_unix_ns) {
    entry.span.first_unix_ns = start_unix_ns;
    write = true;
  }
  entry.span.last_unix_ns = std::max(entry.span.last_unix_ns, end_unix_ns);
  write |= entry.span.last_unix_ns >= entry.written_last_unix_ns + kWriteEveryNs;
  if (!write) return;
  entry.written_last_unix_ns = entry.span.last_unix_ns;
  batch->Put(database_->family(Family::kMeta), IntentSeenKey(intent),
             Value64(entry.span.first_unix_ns) + Value64(entry.span.last_unix_ns));
}

ReadView::SeenSpan IntentSeenTable::Get(IntentNumber intent) const {
  absl::MutexLock lock(&mutex_);
  return intent < entries_.size() ? entries_[intent].span : ReadView::SeenSpan();
}

}  // namespace fleetblame::aggregator
