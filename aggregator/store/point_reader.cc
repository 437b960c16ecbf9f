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

absl::Status PointReader::ScanUnits(Level level, PointKind kind, std::span<const uint32_t> units,
                                    uint64_t from_unix_ns, uint64_t to_unix_ns, Sink sink) {
  if (from_unix_ns >= to_unix_ns) return absl::OkStatus();
  const uint64_t length = PartitionNs(level);
  const uint64_t last = (to_unix_ns - 1) / length;
  rocksdb::Iterator* at = IteratorOf(level);
  for (uint64_t partition = from_unix_ns / length; partition <= last; ++partition) {
    const uint64_t from = std::max(from_unix_ns, partition * length);
    for (auto unit = units.begin(); unit != units.end();) {
      at->Seek(EncodePointKey(level, kind, *unit, from));
      std::optional<PointKey> key;
      for (; at->Valid(); at->Next()) {
        key = DecodePointKey(FromSlice(at->key()));
        if (!key.has_value()) return absl::DataLossError("a key of a point is damaged");
        if (key->partition != partition || key->kind != kind || key->unit != *unit ||
            key->last_ns >= to_unix_ns) {
          break;
        }
        if (!sink(*key, FromSlice(at->value()))) return absl::OkStatus();
      }
      if (!at->Valid()) {
        if (!at->status().ok()) {
          return FromRocks(at->status(), absl::StrCat("read points of store ", database_->path()));
        }
        break;
      }
      if (key->partition != partition || key->kind != kind) break;
      // On to the unit of the point that stopped us, or to the first behind it.
      unit = std::lower_bound(unit + 1, units.end(), key->unit);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadWindowSplit(std::string_view value, const PointKey& key, PointReader* reader,
                             std::vector<SplitWindow>* windows) {
  bool found = false;
  absl::Status error;
  absl::Status status =
      reader->Scan(Level::k1m, PointKind::kHostRows, key.unit, key.last_ns, key.last_ns + 1,
                   [&](const PointKey&, std::string_view minute) {
                     found = true;
                     error = DecodeWindowSplit(value, minute, key.last_ns, windows);
                     return false;
                   });
  if (!status.ok()) return status;
  if (!found) return absl::DataLossError("the minute's block that raw windows rest on is missing");
  return error;
}

}  // namespace fleetblame::aggregator
