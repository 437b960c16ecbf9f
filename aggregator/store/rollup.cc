// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/rollup.h"

#include <algorithm>

#include "aggregator/store/books.h"
#include "aggregator/store/intent_split.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/row_codec.h"
#include "aggregator/store/tag_wait_sums.h"
#include "aggregator/store/window_sum.h"

namespace fleetblame::aggregator {
namespace {

uint64_t EndOf(const Bucket& bucket) { return bucket.start_unix_ns + LevelNs(bucket.level); }

Level FinerOf(Level level) { return static_cast<Level>(static_cast<int>(level) - 1); }

template <typename Message>
bool Parse(std::string_view value, Message* out) {
  return out->ParseFromArray(value.data(), static_cast<int>(value.size()));
}

}  // namespace

RowMerger::Limits Rollup::LimitsOf(Level level) const {
  RowMerger::Limits limits;
  limits.files = options_.rollup_files[static_cast<size_t>(level)];
  limits.rows = options_.rollup_max_rows;
  limits.other_actor = other_actor_;
  return limits;
}

absl::Status Rollup::Make(const Bucket& bucket, uint32_t hosts, PointReader* reader,
                          rocksdb::WriteBatch* batch) {
  return bucket.unit_kind == UnitKind::kHost ? MakeHost(bucket, reader, batch)
                                             : MakeGroup(bucket, hosts, reader, batch);
}

absl::Status Rollup::MakeHost(const Bucket& bucket, PointReader* reader,
                              rocksdb::WriteBatch* batch) {
  if (bucket.level == Level::k1m) {
    if (absl::Status status = MakeMinute(bucket, reader, batch); !status.ok()) return status;
    return MakeBooks(bucket, reader, batch);
  }
  const uint64_t to = EndOf(bucket);
  absl::Status error;
  absl::Status status =
      reader->Scan(FinerOf(bucket.level), PointKind::kHostRows, bucket.unit, bucket.start_unix_ns,
                   to, [&](const PointKey&, std::string_view v) {
                     uint64_t span_ns = 0;
                     error = DecodeRows(v, &rows_, &span_ns);
                     if (!error.ok()) return false;
                     merger_.Add(rows_);
                     rows_read_ += static_cast<uint64_t>(rows_.op_confidence_size());
                     return true;
                   });
  v1::RowBlock rows = merger_.Finish(LimitsOf(bucket.level));
  if (!error.ok()) return error;
  if (!status.ok()) return status;
  if (rows.op_confidence_size() > 0) {
    batch->Put(database_->family(PointsFamily(bucket.level)),
               EncodePointKey(bucket.level, PointKind::kHostRows, bucket.unit, to - 1),
               EncodeRows(rows, LevelNs(bucket.level)));
  }
  return MakeBooks(bucket, reader, batch);
}

absl::Status Rollup::ReadWindows(const Bucket& bucket, PointReader* reader) {
  size_t used = 0;  // of windows_, whose blocks keep their memory from bucket to bucket
  window_keys_.clear();
  split_ = false;
  std::vector<SplitWindow> shares;
  absl::Status error;
  absl::Status status =
      reader->Scan(Level::kRaw, PointKind::kHostRows, bucket.unit, bucket.start_unix_ns,
                   EndOf(bucket), [&](const PointKey& key, std::string_view value) {
                     window_keys_.push_back(EncodePointKey(Level::kRaw, PointKind::kHostRows,
                                                           bucket.unit, key.last_ns) +
                                            std::string(key.suffix));
                     if (IsWindowSplit(value)) {
                       split_ = true;
                       error = ReadWindowSplit(value, key, reader, &shares);
                       return error.ok();
                     }
                     if (used == windows_.size()) windows_.emplace_back();
                     SplitWindow& w = windows_[used++];
                     w.last_ns = key.last_ns;
                     error = DecodeRows(value, &w.rows, &w.span_ns);
                     return error.ok();
                   });
  windows_.resize(used);
  std::move(shares.begin(), shares.end(), std::back_inserter(windows_));
  return error.ok() ? status : error;
}

absl::Status Rollup::MakeMinute(const Bucket& bucket, PointReader* reader,
                                rocksdb::WriteBatch* batch) {
  if (absl::Status status = ReadWindows(bucket, reader); !status.ok()) return status;
  for (const SplitWindow& w : windows_) {
    rows_read_ += static_cast<uint64_t>(w.rows.op_confidence_size());
  }
  const RowMerger::Limits limits = LimitsOf(Level::k1m);
  std::optional<v1::RowBlock> rows = SumWindows(windows_, limits.rows, limits.files);
  if (!rows.has_value()) {
    for (const SplitWindow& w : windows_) merger_.Add(w.rows);
    rows = merger_.Finish(limits);
  }
  if (rows->op_confidence_size() == 0) return absl::OkStatus();
  const std::string minute = EncodeRows(*rows, LevelNs(Level::k1m));
  batch->Put(database_->family(Family::kPoints1m),
             EncodePointKey(Level::k1m, PointKind::kHostRows, bucket.unit, EndOf(bucket) - 1),
             minute);
  RewriteWindows(bucket, minute, batch);
  return absl::OkStatus();
}

void Rollup::RewriteWindows(const Bucket& bucket, const std::string& minute,
                            rocksdb::WriteBatch* batch) {
  rocksdb::ColumnFamilyHandle* family = database_->family(Family::kPointsRaw);
  const uint64_t last_ns = EndOf(bucket) - 1;
  std::optional<std::string> value = EncodeWindowSplit(minute, last_ns, windows_);
  ++(value.has_value() ? minutes_shared_ : minutes_kept_);
  // As they were sent is as good, unless they were rewritten before: the sum is another one now.
  if (!value.has_value() && !split_) return;
  for (const std::string& key : window_keys_) batch->Delete(family, key);
  if (value.has_value()) {
    batch->Put(family, SplitKey(bucket.unit, last_ns), *value);
    return;
  }
  for (size_t i = 0; i < windows_.size(); ++i) {
    batch->Put(family, RestoredKey(bucket.unit, windows_[i].last_ns, static_cast<uint32_t>(i)),
               EncodeRows(windows_[i].rows, windows_[i].span_ns));
  }
}

absl::Status Rollup::MakeBooks(const Bucket& bucket, PointReader* reader,
                               rocksdb::WriteBatch* batch) {
  const Level source = FinerOf(bucket.level);
  const uint64_t from = bucket.start_unix_ns;
  const uint64_t to = EndOf(bucket);
  rocksdb::ColumnFamilyHandle* family = database_->family(PointsFamily(bucket.level));
  auto key = [&](PointKind kind) {
    return EncodePointKey(bucket.level, kind, bucket.unit, to - 1);
  };
  absl::Status error;
  CoverageSums coverage_sums;
  absl::Status status = reader->Scan(source, PointKind::kCoverage, bucket.unit, from, to,
                                     [&](const PointKey&, std::string_view v) {
                                       stored::Coverage coverage;
                                       if (!Parse(v, &coverage))
                                         error = absl::DataLossError("damaged coverage");
                                       AddCoverage(coverage, &coverage_sums);
                                       return error.ok();
                                     });
  if (!error.ok()) return error;
  if (!status.ok()) return status;
  if (!coverage_sums.empty()) {
    batch->Put(family, key(PointKind::kCoverage), ToStored(coverage_sums).SerializeAsString());
  }

  LossSums loss_sums;
  status = reader->Scan(source, PointKind::kLosses, bucket.unit, from, to,
                        [&](const PointKey&, std::string_view v) {
                          stored::Losses losses;
                          if (!Parse(v, &losses)) error = absl::DataLossError("damaged losses");
                          AddLosses(losses, &loss_sums);
                          return error.ok();
                        });
  if (!error.ok()) return error;
  if (!status.ok()) return status;
  if (!loss_sums.empty()) {
    batch->Put(family, key(PointKind::kLosses), ToStored(loss_sums).SerializeAsString());
  }

  TagWaitSums tag_sums;
  v1::TagWaits waits;
  status = reader->Scan(source, PointKind::kTagWaits, bucket.unit, from, to,
                        [&](const PointKey&, std::string_view v) {
                          if (!Parse(v, &waits)) error = absl::DataLossError("damaged tag waits");
                          tag_sums.Add(waits);
                          return error.ok();
                        });
  if (!error.ok()) return error;
  if (!status.ok()) return status;
  if (!tag_sums.empty()) {
    batch->Put(family, key(PointKind::kTagWaits), tag_sums.Finish().SerializeAsString());
  }
  return absl::OkStatus();
}

absl::Status Rollup::MakeGroup(const Bucket& bucket, uint32_t hosts, PointReader* reader,
                               rocksdb::WriteBatch* batch) {
  const uint64_t to = EndOf(bucket);
  const bool by_intent = bucket.level >= kFirstIntentLevel;
  rocksdb::ColumnFamilyHandle* family = database_->family(PointsFamily(bucket.level));
  IntentSplit split;
  absl::Status error;
  const HostNumber first = std::max(bucket.unit * kHostsPerGroup, 1u);
  const HostNumber last = std::min((bucket.unit + 1) * kHostsPerGroup - 1, hosts);
  for (HostNumber host = first; host <= last; ++host) {
    absl::Status status = reader->Scan(
        bucket.level, PointKind::kHostRows, host, bucket.start_unix_ns, to,
        [&](const PointKey&, std::string_view value) {
          uint64_t span_ns = 0;
          error = DecodeRows(value, &rows_, &span_ns);
          if (!error.ok()) return false;
          merger_.Add(
              rows_, [this](uint32_t device) { return interner_->FleetDevice(device); }, true);
          rows_read_ += static_cast<uint64_t>(rows_.op_confidence_size());
          if (by_intent) split.Add(host, rows_);
          return true;
        });
    if (error.ok() && status.ok()) continue;
    merger_.Finish();
    return error.ok() ? status : error;
  }
  v1::RowBlock rows = merger_.Finish(LimitsOf(bucket.level));
  if (rows.op_confidence_size() > 0) {
    batch->Put(family, EncodePointKey(bucket.level, PointKind::kGroupRows, bucket.unit, to - 1),
               EncodeRows(rows, LevelNs(bucket.level)));
  }
  split.Finish([&](IntentNumber intent, const stored::IntentRows& intent_rows) {
    std::string key = EncodePointKey(bucket.level, PointKind::kIntentRows, intent, to - 1);
    PutBigEndian32(&key, bucket.unit);
    batch->Put(family, key, intent_rows.SerializeAsString());
  });
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
