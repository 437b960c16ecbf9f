// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_merger.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kMaxSpare = 4096;

// Walks the flattened bucket list of one histogram column.
template <typename Dense>
void AddBuckets(const google::protobuf::RepeatedField<uint32_t>& deltas,
                const google::protobuf::RepeatedField<uint64_t>& counts, int at, uint32_t size,
                Dense* out) {
  int bucket = 0;
  const uint32_t* delta = deltas.data() + at;
  const uint64_t* count = counts.data() + at;
  for (uint32_t i = 0; i < size; ++i) {
    bucket += static_cast<int>(delta[i]);
    out->Add(bucket, count[i]);
  }
}

template <typename Dense>
SparseHistogram ToSparse(const Dense& dense) {
  SparseHistogram out;
  for (int b = dense.low; b <= dense.high; ++b) out.Add(b, dense.counts[static_cast<size_t>(b)]);
  return out;
}

}  // namespace

inline void RowMerger::Dense::Add(int bucket, uint64_t count) {
  counts[static_cast<size_t>(bucket)] += count;
  low = std::min(low, bucket);
  high = std::max(high, bucket);
}

void RowMerger::Dense::Merge(const Dense& other) {
  for (int b = other.low; b <= other.high; ++b) {
    counts[static_cast<size_t>(b)] += other.counts[static_cast<size_t>(b)];
  }
  low = std::min(low, other.low);
  high = std::max(high, other.high);
}

RowMerger::Sum& RowMerger::SumOf(const Key& key) {
  auto [at, inserted] = index_.try_emplace(key, sums_.size());
  if (!inserted) return *sums_[at->second];
  if (spare_.empty()) {
    sums_.push_back(std::make_unique<Sum>());
  } else {
    sums_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  sums_.back()->key = key;
  return *sums_.back();
}

void RowMerger::Add(const v1::RowBlock& b, const DeviceMap& map_device, bool drop_files) {
  std::vector<uint32_t> devices(b.devices().begin(), b.devices().end());
  if (map_device) {
    for (uint32_t& device : devices) device = map_device(device);
  }
  const int rows = b.op_confidence_size();
  int wait_at = 0;
  int io_at = 0;
  for (int i = 0; i < rows; ++i) {
    Key key;
    key.dirtier_intent = b.intents(static_cast<int>(b.dirtier_intent_ref(i)));
    key.issuer_intent = b.intents(static_cast<int>(b.issuer_intent_ref(i)));
    key.dirtier_actor = b.actors(static_cast<int>(b.dirtier_actor_ref(i)));
    key.issuer_actor = b.actors(static_cast<int>(b.issuer_actor_ref(i)));
    key.device = devices[b.device_ref(i)];
    key.file = drop_files ? 0 : b.files(static_cast<int>(b.file_ref(i)));
    key.op_confidence = b.op_confidence(i);
    Sum& sum = SumOf(key);
    sum.ios += b.ios(i);
    sum.bytes += b.bytes(i);
    sum.wait_ns += b.wait_ns(i);
    sum.io_ns += b.io_ns(i);
    if (!b.errors().empty()) sum.errors += b.errors(i);
    if (!b.requeues().empty()) sum.requeues += b.requeues(i);
    if (!b.wait_buckets().empty()) {
      uint32_t size = b.wait_buckets(i);
      AddBuckets(b.wait_bucket_delta(), b.wait_bucket_count(), wait_at, size, &sum.wait);
      wait_at += static_cast<int>(size);
    }
    if (!b.io_buckets().empty()) {
      uint32_t size = b.io_buckets(i);
      AddBuckets(b.io_bucket_delta(), b.io_bucket_count(), io_at, size, &sum.io);
      io_at += static_cast<int>(size);
    }
  }
}

void RowMerger::Rekey(const std::function<void(Key*)>& change) {
  std::vector<std::unique_ptr<Sum>> old = std::exchange(sums_, {});
  index_.clear();
  for (std::unique_ptr<Sum>& sum : old) {
    change(&sum->key);
    auto [at, inserted] = index_.try_emplace(sum->key, sums_.size());
    if (inserted) {
      sums_.push_back(std::move(sum));
      continue;
    }
    Sum& into = *sums_[at->second];
    into.ios += sum->ios;
    into.bytes += sum->bytes;
    into.wait_ns += sum->wait_ns;
    into.io_ns += sum->io_ns;
    into.errors += sum->errors;
    into.requeues += sum->requeues;
    into.wait.Merge(sum->wait);
    into.io.Merge(sum->io);
  }
}

void RowMerger::FoldFiles(uint32_t keep) {
  absl::flat_hash_map<uint32_t, uint64_t> bytes;
  for (const auto& sum : sums_) {
    if (sum->key.file != 0) bytes[sum->key.file] += sum->bytes;
  }
  if (bytes.size() <= keep) return;
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (const auto& [file, n] : bytes) order.emplace_back(n, file);
  std::nth_element(order.begin(), order.begin() + keep, order.end(), std::greater<>());
  absl::flat_hash_set<uint32_t> kept;
  for (uint32_t i = 0; i < keep; ++i) kept.insert(order[i].second);
  Rekey([&kept](Key* key) {
    if (!kept.contains(key->file)) key->file = 0;
  });
}

// The `keep` rows that moved the most bytes keep their actors.
void RowMerger::FoldActors(size_t keep, uint32_t other_actor) {
  if (sums_.size() <= keep) return;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < sums_.size(); ++i) order.emplace_back(sums_[i]->bytes, i);
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(),
                   std::greater<>());
  absl::flat_hash_set<Key> small;
  for (size_t i = keep; i < order.size(); ++i) small.insert(sums_[order[i].second]->key);
  Rekey([&small, other_actor](Key* key) {
    if (small.contains(*key)) key->dirtier_actor = key->issuer_actor = other_actor;
  });
}

v1::RowBlock RowMerger::Finish(const Limits& limits) {
  FoldFiles(limits.files);
  if (sums_.size() > limits.rows) FoldFiles(0);
  if (sums_.size() > limits.rows) FoldActors(limits.rows / 2, limits.other_actor);
  RowBlockBuilder builder;
  BlockRow row;
  for (std::unique_ptr<Sum>& sum : sums_) {
    row.dirtier_intent = sum->key.dirtier_intent;
    row.issuer_intent = sum->key.issuer_intent;
    row.dirtier_actor = sum->key.dirtier_actor;
    row.issuer_actor = sum->key.issuer_actor;
    row.device = sum->key.device;
    row.file = sum->key.file;
    row.operation = static_cast<v1::Operation>(sum->key.op_confidence & 0xf);
    row.confidence = static_cast<v1::Confidence>(sum->key.op_confidence >> 4);
    row.ios = sum->ios;
    row.bytes = sum->bytes;
    row.wait_ns = sum->wait_ns;
    row.io_ns = sum->io_ns;
    row.errors = sum->errors;
    row.requeues = sum->requeues;
    row.wait = ToSparse(sum->wait);
    row.io = ToSparse(sum->io);
    builder.Add(row);
    if (spare_.size() < kMaxSpare) {
      *sum = Sum();
      spare_.push_back(std::move(sum));
    }
  }
  sums_.clear();
  index_.clear();
  return builder.Finish();
}

}  // namespace fleetblame::aggregator
