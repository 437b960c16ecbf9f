// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_merger.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/saturating.h"

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

// Writes one histogram behind those of the rows before it.
template <typename Dense>
void PutBuckets(const Dense& dense, google::protobuf::RepeatedField<uint32_t>* sizes,
                google::protobuf::RepeatedField<uint32_t>* deltas,
                google::protobuf::RepeatedField<uint64_t>* counts) {
  uint32_t size = 0;
  int last = 0;
  for (int b = dense.low; b <= dense.high; ++b) {
    uint64_t count = dense.counts[static_cast<size_t>(b)];
    if (count == 0) continue;
    deltas->Add(static_cast<uint32_t>(b - last));
    counts->Add(count);
    last = b;
    ++size;
  }
  sizes->Add(size);
}

// Where each number stands in a table; new ones are put at its end.
class TableWriter {
 public:
  TableWriter(google::protobuf::RepeatedField<uint32_t>* table, bool begins_with_none)
      : table_(table) {
    if (begins_with_none) Ref(0);
  }
  uint32_t Ref(uint32_t number) {
    auto [at, inserted] = refs_.try_emplace(number, static_cast<uint32_t>(table_->size()));
    if (inserted) table_->Add(number);
    return at->second;
  }

 private:
  google::protobuf::RepeatedField<uint32_t>* const table_;
  absl::flat_hash_map<uint32_t, uint32_t> refs_;
};

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

void RowMerger::Dense::Clear() {
  if (low <= high) std::fill(counts.begin() + low, counts.begin() + high + 1, 0);
  low = kHistogramBuckets;
  high = -1;
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
    Grow(&sum.ios, b.ios(i));
    Grow(&sum.bytes, b.bytes(i));
    Grow(&sum.wait_ns, b.wait_ns(i));
    Grow(&sum.io_ns, b.io_ns(i));
    if (!b.errors().empty()) Grow(&sum.errors, b.errors(i));
    if (!b.requeues().empty()) Grow(&sum.requeues, b.requeues(i));
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
    Grow(&into.ios, sum->ios);
    Grow(&into.bytes, sum->bytes);
    Grow(&into.wait_ns, sum->wait_ns);
    Grow(&into.io_ns, sum->io_ns);
    Grow(&into.errors, sum->errors);
    Grow(&into.requeues, sum->requeues);
    into.wait.Merge(sum->wait);
    into.io.Merge(sum->io);
  }
}

void RowMerger::FoldFiles(uint32_t keep) {
  absl::flat_hash_map<uint32_t, uint64_t> bytes;
  for (const auto& sum : sums_) {
    if (sum->key.file != 0) Grow(&bytes[sum->key.file], sum->bytes);
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
  v1::RowBlock out;
  TableWriter intents(out.mutable_intents(), true);
  TableWriter actors(out.mutable_actors(), true);
  TableWriter devices(out.mutable_devices(), false);
  TableWriter files(out.mutable_files(), true);
  bool errors = false;
  bool requeues = false;
  for (std::unique_ptr<Sum>& sum : sums_) {
    const Key& key = sum->key;
    out.add_dirtier_intent_ref(intents.Ref(key.dirtier_intent));
    out.add_issuer_intent_ref(intents.Ref(key.issuer_intent));
    out.add_dirtier_actor_ref(actors.Ref(key.dirtier_actor));
    out.add_issuer_actor_ref(actors.Ref(key.issuer_actor));
    out.add_device_ref(devices.Ref(key.device));
    out.add_file_ref(files.Ref(key.file));
    out.add_op_confidence(key.op_confidence);
    out.add_ios(sum->ios);
    out.add_bytes(sum->bytes);
    out.add_wait_ns(sum->wait_ns);
    out.add_io_ns(sum->io_ns);
    out.add_errors(sum->errors);
    out.add_requeues(sum->requeues);
    errors |= sum->errors != 0;
    requeues |= sum->requeues != 0;
    PutBuckets(sum->wait, out.mutable_wait_buckets(), out.mutable_wait_bucket_delta(),
               out.mutable_wait_bucket_count());
    PutBuckets(sum->io, out.mutable_io_buckets(), out.mutable_io_bucket_delta(),
               out.mutable_io_bucket_count());
    if (spare_.size() >= kMaxSpare) continue;
    sum->ios = sum->bytes = sum->wait_ns = sum->io_ns = sum->errors = sum->requeues = 0;
    sum->wait.Clear();
    sum->io.Clear();
    spare_.push_back(std::move(sum));
  }
  if (!errors) out.clear_errors();
  if (!requeues) out.clear_requeues();
  sums_.clear();
  index_.clear();
  return out;
}

}  // namespace fleetblame::aggregator
