// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/retention.h"

#include <rocksdb/convenience.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/rocks_status.h"

namespace fleetblame::aggregator {

absl::StatusOr<Horizons> LoadHorizons(const Database& database) {
  Horizons horizons{};
  for (int l = 0; l < kLevels; ++l) {
    std::string value;
    bool found = false;
    absl::Status status =
        database.Get(Family::kMeta, HorizonKey(static_cast<Level>(l)), &value, &found);
    if (!status.ok()) return status;
    std::string_view rest = value;
    if (found && !TakeBigEndian64(&rest, &horizons[static_cast<size_t>(l)])) {
      return absl::DataLossError(
          absl::StrCat("store ", database.path(), ": a retention record is damaged"));
    }
  }
  return horizons;
}

uint64_t NextHorizon(Level level, const RocksStoreOptions& options, uint64_t now_unix_ns,
                     const Horizons& present, const DirtyMarks& dirty) {
  const auto l = static_cast<size_t>(level);
  const uint64_t retention = options.retention_ns[l];
  uint64_t wanted = now_unix_ns > retention ? now_unix_ns - retention : 0;
  if (level != Level::k1d) {
    const auto next = static_cast<Level>(l + 1);
    wanted = std::min(
        {wanted, dirty.Oldest(next, UnitKind::kHost), dirty.Oldest(next, UnitKind::kGroup)});
  }
  // What is coarser must reach at least as far back.
  if (level != Level::kRaw) wanted = std::min(wanted, present[l - 1]);
  wanted -= wanted % PartitionNs(level);
  return std::max(wanted, present[l]);
}

absl::Status DropPointsBefore(const Database& database, Level level, uint64_t horizon) {
  const std::string begin = Value32(0);
  const std::string end = Value32(static_cast<uint32_t>(horizon / PartitionNs(level)));
  rocksdb::ColumnFamilyHandle* family = database.family(PointsFamily(level));
  const std::string doing = absl::StrCat("drop old points of store ", database.path());
  // Files hold one partition each, so nearly all of it goes without being read; the range removal
  // is for what has not been written out of memory yet.
  rocksdb::Slice begin_slice(begin);
  rocksdb::Slice end_slice(end);
  rocksdb::RangePtr range(&begin_slice, &end_slice);
  rocksdb::Status status =
      rocksdb::DeleteFilesInRanges(database.db(), family, &range, 1, /*include_end=*/false);
  if (!status.ok()) return FromRocks(status, doing);
  return FromRocks(database.db()->DeleteRange(rocksdb::WriteOptions(), family, begin, end), doing);
}

absl::Status DropGapsBefore(const Database& database, uint64_t end_unix_ns,
                            rocksdb::WriteBatch* batch) {
  std::unique_ptr<rocksdb::Iterator> at(
      database.db()->NewIterator(rocksdb::ReadOptions(), database.family(Family::kGaps)));
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    std::string_view key = FromSlice(at->key());
    uint32_t host = 0;
    uint64_t end = 0;
    if (!TakeBigEndian32(&key, &host) || !TakeBigEndian64(&key, &end)) continue;
    if (end < end_unix_ns) batch->Delete(database.family(Family::kGaps), at->key());
  }
  return FromRocks(at->status(), absl::StrCat("read gaps of store ", database.path()));
}

}  // namespace fleetblame::aggregator
