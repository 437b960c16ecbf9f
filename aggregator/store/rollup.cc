// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/rollup.h"

#include <algorithm>

#include "aggregator/store/books.h"
#include "aggregator/store/intent_split.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/row_codec.h"

namespace fleetblame::aggregator {
namespace {

uint64_t EndOf(const Bucket& bucket) { return bucket.start_unix_ns + LevelNs(bucket.level); }

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
  const auto source = static_cast<Level>(static_cast<int>(bucket.level) - 1);
  const uint64_t from = bucket.start_unix_ns;
  const uint64_t to = EndOf(bucket);
  rocksdb::ColumnFamilyHandle* family = database_->family(PointsFamily(bucket.level));
  auto key = [&](PointKind kind) {
    return EncodePointKey(bucket.level, kind, bucket.unit, to - 1);
  };
  absl::Status error;

  absl::Status status = reader->Scan(source, PointKind::kHostRows, bucket.unit, from, to,
                                     [&](const PointKey&, std::string_view v) {
                                       uint64_t span_ns = 0;
                                       error = DecodeRows(v, &rows_, &span_ns);
                                       if (!error.ok()) return false;
                                       merger_.Add(rows_);
                                       rows_read_ +=
                                           static_cast<uint64_t>(rows_.op_confidence_size());
                                       return true;
                                     });
  v1::RowBlock rows = merger_.Finish(LimitsOf(bucket.level));
  if (!error.ok()) return error;
  if (!status.ok()) return status;
  if (rows.op_confidence_size() > 0) {
    batch->Put(family, key(PointKind::kHostRows), EncodeRows(rows, to - from));
  }

  CoverageSums coverage_sums;
  status = reader->Scan(source, PointKind::kCoverage, bucket.unit, from, to,
                        [&](const PointKey&, std::string_view v) {
                          stored::Coverage coverage;
                          if (!Parse(v, &coverage)) error = absl::DataLossError("damaged coverage");
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
