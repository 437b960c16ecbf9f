// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/dirty_marks.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/rocks_status.h"

namespace fleetblame::aggregator {
namespace {

std::string MarkKey(const Bucket& bucket) {
  std::string key;
  key.push_back(static_cast<char>(bucket.level));
  key.push_back(static_cast<char>(bucket.unit_kind));
  PutBigEndian64(&key, bucket.start_unix_ns);
  PutBigEndian32(&key, bucket.unit);
  return key;
}

bool ParseMarkKey(std::string_view key, Bucket* bucket) {
  if (key.size() != 14) return false;
  auto level = static_cast<uint8_t>(key[0]);
  auto kind = static_cast<uint8_t>(key[1]);
  if (level == 0 || level >= kLevels || kind > 1) return false;
  bucket->level = static_cast<Level>(level);
  bucket->unit_kind = static_cast<UnitKind>(kind);
  key.remove_prefix(2);
  return TakeBigEndian64(&key, &bucket->start_unix_ns) && TakeBigEndian32(&key, &bucket->unit);
}

}  // namespace

std::span<const uint64_t> DirtyCopy::Stale(Level level, UnitKind kind, uint32_t unit, uint64_t from,
                                           uint64_t to) const {
  const List& list = lists_[static_cast<size_t>(level)][static_cast<size_t>(kind)];
  auto at = std::lower_bound(list.units.begin(), list.units.end(), unit);
  if (at == list.units.end() || *at != unit) return {};
  auto i = static_cast<size_t>(at - list.units.begin());
  auto begin = list.starts.begin() + list.begins[i];
  auto end = list.starts.begin() + list.begins[i + 1];
  begin = std::lower_bound(begin, end, from);
  end = std::lower_bound(begin, end, to);
  return {begin, end};
}

absl::Status DirtyMarks::Load() {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<rocksdb::Iterator> at(
      database_->db()->NewIterator(rocksdb::ReadOptions(), database_->family(Family::kDirty)));
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    Bucket bucket;
    if (!ParseMarkKey(FromSlice(at->key()), &bucket)) {
      return absl::DataLossError(absl::StrCat("store ", database_->path(), ": a mark is damaged"));
    }
    MapOf(bucket.level, bucket.unit_kind)[{bucket.start_unix_ns, bucket.unit}] = {
        next_generation_++, 0};
  }
  return FromRocks(at->status(), absl::StrCat("read marks of store ", database_->path()));
}

bool DirtyMarks::Mark(const Bucket& bucket, int64_t now_ns, rocksdb::WriteBatch* batch) {
  absl::MutexLock lock(&mutex_);
  auto [at, inserted] =
      MapOf(bucket.level, bucket.unit_kind).try_emplace({bucket.start_unix_ns, bucket.unit});
  at->second = {next_generation_++, now_ns};
  if (!inserted) return false;
  copy_ = nullptr;
  ++version_;
  batch->Put(database_->family(Family::kDirty), MarkKey(bucket), rocksdb::Slice());
  return true;
}

void DirtyMarks::Unmark(const Bucket& bucket) { Clear(bucket); }

std::vector<DirtyMarks::Claim> DirtyMarks::Collect(Level level, UnitKind kind,
                                                   uint64_t closed_before_unix_ns,
                                                   int64_t settled_before_ns, size_t limit) const {
  absl::MutexLock lock(&mutex_);
  std::vector<Claim> claims;
  for (const auto& [key, state] : MapOf(level, kind)) {
    if (claims.size() >= limit || key.first + LevelNs(level) > closed_before_unix_ns) break;
    if (state.touched_ns > settled_before_ns) continue;
    claims.push_back({{level, kind, key.second, key.first}, state.generation});
  }
  return claims;
}

bool DirtyMarks::Unchanged(const Claim& claim) const {
  absl::MutexLock lock(&mutex_);
  const Map& map = MapOf(claim.bucket.level, claim.bucket.unit_kind);
  auto at = map.find({claim.bucket.start_unix_ns, claim.bucket.unit});
  return at != map.end() && at->second.generation == claim.generation;
}

void DirtyMarks::AddRemoval(const Database& database, const Bucket& bucket,
                            rocksdb::WriteBatch* batch) {
  batch->Delete(database.family(Family::kDirty), MarkKey(bucket));
}

void DirtyMarks::Clear(const Bucket& bucket) {
  absl::MutexLock lock(&mutex_);
  MapOf(bucket.level, bucket.unit_kind).erase({bucket.start_unix_ns, bucket.unit});
  copy_ = nullptr;
}

bool DirtyMarks::Has(const Bucket& bucket) const {
  absl::MutexLock lock(&mutex_);
  return MapOf(bucket.level, bucket.unit_kind).contains({bucket.start_unix_ns, bucket.unit});
}

uint64_t DirtyMarks::Oldest(Level level, UnitKind kind) const {
  absl::MutexLock lock(&mutex_);
  const Map& map = MapOf(level, kind);
  return map.empty() ? UINT64_MAX : map.begin()->first.first;
}

size_t DirtyMarks::size() const {
  absl::MutexLock lock(&mutex_);
  size_t n = 0;
  for (const auto& of_level : maps_) n += of_level[0].size() + of_level[1].size();
  return n;
}

std::shared_ptr<const DirtyCopy> DirtyMarks::Copy() const {
  absl::MutexLock lock(&mutex_);
  if (copy_ != nullptr) return copy_;
  auto copy = std::make_shared<DirtyCopy>();
  std::vector<std::pair<uint32_t, uint64_t>> sorted;
  for (size_t level = 0; level < kLevels; ++level) {
    for (size_t kind = 0; kind < 2; ++kind) {
      sorted.clear();
      for (const auto& [key, state] : maps_[level][kind])
        sorted.emplace_back(key.second, key.first);
      std::sort(sorted.begin(), sorted.end());
      DirtyCopy::List& list = copy->lists_[level][kind];
      for (const auto& [unit, start] : sorted) {
        if (list.units.empty() || list.units.back() != unit) {
          list.units.push_back(unit);
          list.begins.push_back(static_cast<uint32_t>(list.starts.size()));
        }
        list.starts.push_back(start);
      }
      list.begins.push_back(static_cast<uint32_t>(list.starts.size()));
    }
  }
  copy_ = copy;
  return copy;
}

}  // namespace fleetblame::aggregator
