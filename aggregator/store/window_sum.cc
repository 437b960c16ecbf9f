// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/window_sum.h"

#include <algorithm>
#include <array>
#include <vector>

#include "aggregator/store/row_keys.h"
#include "common/histogram.h"
#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

using Column32 = google::protobuf::RepeatedField<uint32_t>;
using Column64 = google::protobuf::RepeatedField<uint64_t>;

constexpr RowKey kNoMore = ~RowKey{0};

// Counts of one histogram of one row.
class Buckets {
 public:
  void Add(const uint32_t* deltas, const uint64_t* counts, uint32_t size) {
    size_t bucket = 0;
    for (uint32_t i = 0; i < size; ++i) {
      bucket += deltas[i];
      counts_[bucket] += counts[i];
      low_ = std::min(low_, bucket);
      high_ = std::max(high_, bucket + 1);
    }
  }
  // Writes them out and is empty again.
  void MoveTo(Column32* sizes, Column32* deltas, Column64* counts) {
    uint32_t size = 0;
    size_t last = 0;
    for (size_t b = low_; b < high_; ++b) {
      if (counts_[b] == 0) continue;
      deltas->Add(static_cast<uint32_t>(b - last));
      counts->Add(counts_[b]);
      counts_[b] = 0;
      last = b;
      ++size;
    }
    sizes->Add(size);
    low_ = counts_.size();
    high_ = 0;
  }

 private:
  std::array<uint64_t, kHistogramBuckets> counts_{};
  size_t low_ = kHistogramBuckets;
  size_t high_ = 0;
};

struct Walk {
  const v1::RowBlock* b;
  std::vector<RowKey> keys;
  int row = 0;
  size_t wait_at = 0;
  size_t io_at = 0;

  RowKey key() const {
    return static_cast<size_t>(row) < keys.size() ? keys[static_cast<size_t>(row)] : kNoMore;
  }
};

struct Sum {
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
};

void AddRow(Walk* w, Sum* sum, Buckets* wait, Buckets* io) {
  const v1::RowBlock& b = *w->b;
  const int row = w->row++;
  Grow(&sum->ios, b.ios(row));
  Grow(&sum->bytes, b.bytes(row));
  Grow(&sum->wait_ns, b.wait_ns(row));
  Grow(&sum->io_ns, b.io_ns(row));
  if (!b.errors().empty()) Grow(&sum->errors, b.errors(row));
  if (!b.requeues().empty()) Grow(&sum->requeues, b.requeues(row));
  if (!b.wait_buckets().empty()) {
    const uint32_t size = b.wait_buckets(row);
    wait->Add(b.wait_bucket_delta().data() + w->wait_at, b.wait_bucket_count().data() + w->wait_at,
              size);
    w->wait_at += size;
  }
  if (!b.io_buckets().empty()) {
    const uint32_t size = b.io_buckets(row);
    io->Add(b.io_bucket_delta().data() + w->io_at, b.io_bucket_count().data() + w->io_at, size);
    w->io_at += size;
  }
}

void AddKey(const std::array<uint32_t, kKeyColumns>& key, v1::RowBlock* out) {
  out->add_device_ref(key[0]);
  out->add_op_confidence(key[1]);
  out->add_issuer_actor_ref(key[2]);
  out->add_issuer_intent_ref(key[3]);
  out->add_dirtier_actor_ref(key[4]);
  out->add_dirtier_intent_ref(key[5]);
  out->add_file_ref(key[6]);
}

}  // namespace

std::optional<v1::RowBlock> SumWindows(std::span<const SplitWindow> windows, size_t max_rows,
                                       uint32_t max_files) {
  KeyTables tables;
  for (const SplitWindow& w : windows) tables.Unite(w.rows);
  // One of the files is "none".
  if (!tables.Fit() || tables.files.size() > size_t{max_files} + 1) return std::nullopt;
  std::vector<Walk> walks;
  bool errors = false;
  bool requeues = false;
  for (const SplitWindow& w : windows) {
    std::optional<std::vector<RowKey>> keys = KeysOf(w.rows, tables);
    if (!keys.has_value() || !std::is_sorted(keys->begin(), keys->end())) return std::nullopt;
    errors |= !w.rows.errors().empty();
    requeues |= !w.rows.requeues().empty();
    walks.push_back({&w.rows, *std::move(keys)});
  }
  const auto widths = tables.Widths();
  v1::RowBlock out;
  out.mutable_intents()->Add(tables.intents.begin(), tables.intents.end());
  out.mutable_actors()->Add(tables.actors.begin(), tables.actors.end());
  out.mutable_devices()->Add(tables.devices.begin(), tables.devices.end());
  out.mutable_files()->Add(tables.files.begin(), tables.files.end());
  Buckets wait;
  Buckets io;
  while (true) {
    RowKey key = kNoMore;
    for (const Walk& w : walks) key = std::min(key, w.key());
    if (key == kNoMore) return out;
    if (static_cast<size_t>(out.op_confidence_size()) >= max_rows) return std::nullopt;
    Sum sum;
    for (Walk& w : walks) {
      while (w.key() == key) AddRow(&w, &sum, &wait, &io);
    }
    AddKey(ColumnsOf(key, widths), &out);
    out.add_ios(sum.ios);
    out.add_bytes(sum.bytes);
    out.add_wait_ns(sum.wait_ns);
    out.add_io_ns(sum.io_ns);
    if (errors) out.add_errors(sum.errors);
    if (requeues) out.add_requeues(sum.requeues);
    wait.MoveTo(out.mutable_wait_buckets(), out.mutable_wait_bucket_delta(),
                out.mutable_wait_bucket_count());
    io.MoveTo(out.mutable_io_buckets(), out.mutable_io_bucket_delta(),
              out.mutable_io_bucket_count());
  }
}

}  // namespace fleetblame::aggregator
