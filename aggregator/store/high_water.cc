// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/high_water.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kMaxCached = 200'000;

}  // namespace

absl::StatusOr<uint64_t> HighWater::Durable(HostNumber host, uint64_t spool_epoch) const {
  std::string value;
  bool found = false;
  absl::Status status =
      database_->Get(Family::kMeta, HighWaterKey(host, spool_epoch), &value, &found);
  if (!status.ok()) return status;
  if (!found) return 0;
  std::string_view rest = value;
  uint64_t seq = 0;
  if (!TakeBigEndian64(&rest, &seq)) {
    return absl::DataLossError(absl::StrCat("the sequence number of host ", host, " is damaged"));
  }
  return seq;
}

absl::StatusOr<uint64_t> HighWater::Current(HostNumber host, uint64_t spool_epoch) {
  Key key(host, spool_epoch);
  if (auto at = raised_.find(key); at != raised_.end()) return at->second;
  if (auto at = cache_.find(key); at != cache_.end()) return at->second;
  absl::StatusOr<uint64_t> seq = Durable(host, spool_epoch);
  if (!seq.ok()) return seq;
  if (cache_.size() >= kMaxCached) cache_.clear();
  cache_[key] = *seq;
  return seq;
}

void HighWater::Raise(HostNumber host, uint64_t spool_epoch, uint64_t seq) {
  uint64_t& raised = raised_[{host, spool_epoch}];
  raised = std::max(raised, seq);
}

void HighWater::AddTo(rocksdb::WriteBatch* batch) const {
  for (const auto& [key, seq] : raised_) {
    batch->Put(database_->family(Family::kMeta), HighWaterKey(key.first, key.second), Value64(seq));
  }
}

void HighWater::Commit() {
  for (const auto& [key, seq] : raised_) cache_[key] = seq;
  raised_.clear();
}

void HighWater::Abandon() {
  raised_.clear();
  cache_.clear();
}

}  // namespace fleetblame::aggregator
