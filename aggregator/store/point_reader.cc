// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/point_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/rocks_status.h"

namespace fleetblame::aggregator {

rocksdb::Iterator* PointReader::IteratorOf(Level level) {
  std::unique_ptr<rocksdb::Iterator>& iterator = iterators_[static_cast<size_t>(level)];
  if (iterator == nullptr) {
    rocksdb::ReadOptions options;
    options.snapshot = snapshot_;
    iterator.reset(database_->db()->NewIterator(options, database_->family(PointsFamily(level))));
  }
  return iterator.get();
}

absl::Status PointReader::Scan(Level level, PointKind kind, uint32_t unit, uint64_t from_unix_ns,
                               uint64_t to_unix_ns, Sink sink) {
  if (from_unix_ns >= to_unix_ns) return absl::OkStatus();
  const uint64_t length = PartitionNs(level);
  const uint64_t last = (to_unix_ns - 1) / length;
  rocksdb::Iterator* at = IteratorOf(level);
  for (uint64_t partition = from_unix_ns / length; partition <= last;) {
    uint64_t next = partition + 1;
    at->Seek(EncodePointKey(level, kind, unit, std::max(from_unix_ns, partition * length)));
    for (; at->Valid(); at->Next()) {
      std::optional<PointKey> key = DecodePointKey(FromSlice(at->key()));
      if (!key.has_value()) return absl::DataLossError("a key of a point is damaged");
      // Partitions without any data are skipped at once.
      if (key->partition > partition) next = key->partition;
      if (key->partition != partition || key->kind != kind || key->unit != unit ||
          key->last_ns >= to_unix_ns) {
        break;
      }
      if (!sink(*key, FromSlice(at->value()))) return absl::OkStatus();
    }
    if (!at->Valid()) {
      return FromRocks(at->status(), absl::StrCat("read points of store ", database_->path()));
    }
    partition = next;
  }
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
