// SPDX-License-Identifier: Apache-2.0
#include "common/row_block.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fleetblame {
namespace {

constexpr uint32_t kOperationBits = 4;
constexpr uint32_t kOperationMask = (1u << kOperationBits) - 1;

// Tag and length in front of each packed column and table; the length may take five bytes.
constexpr size_t kColumns = 23;
constexpr size_t kColumnOverheadBytes = 7;

size_t VarintBytes(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Dictionary numbers in order of first use, and where each stands.
class Table {
 public:
  explicit Table(bool begins_with_none) : begins_with_none_(begins_with_none) { Clear(); }

  uint32_t Ref(uint32_t number, size_t* bytes) {
    // Neighbouring rows mostly repeat what the row before named.
    if (!numbers_.empty() && numbers_[last_] == number) return last_;
    auto [at, inserted] = refs_.try_emplace(number, static_cast<uint32_t>(numbers_.size()));
    if (inserted) {
      numbers_.push_back(number);
      *bytes += VarintBytes(number);
    }
    last_ = at->second;
    return last_;
  }

  void MoveTo(google::protobuf::RepeatedField<uint32_t>* out) {
    out->Add(numbers_.begin(), numbers_.end());
    Clear();
  }

 private:
  void Clear() {
    numbers_.clear();
    refs_.clear();
    last_ = 0;
    if (!begins_with_none_) return;
    numbers_.push_back(0);
    refs_.emplace(0, 0);
  }

  const bool begins_with_none_;
  std::vector<uint32_t> numbers_;
  absl::flat_hash_map<uint32_t, uint32_t> refs_;
  uint32_t last_ = 0;
};

// The two flattened bucket lists of a block look alike; this names the columns of one of them.
struct HistogramColumns {
  google::protobuf::RepeatedField<uint32_t>* sizes;
  google::protobuf::RepeatedField<uint32_t>* deltas;
  google::protobuf::RepeatedField<uint64_t>* counts;
};

size_t AddHistogram(const SparseHistogram& histogram, const HistogramColumns& out) {
  auto size = static_cast<uint32_t>(histogram.entries().size());
  size_t bytes = VarintBytes(size);
  out.sizes->Add(size);
  uint32_t previous = 0;
  for (const auto& [bucket, count] : histogram.entries()) {
    out.deltas->Add(bucket - previous);
    out.counts->Add(count);
    bytes += VarintBytes(bucket - previous) + VarintBytes(count);
    previous = bucket;
  }
  return bytes;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("row block: ", what));
}

template <typename Column>
absl::Status CheckLength(const Column& column, int rows, absl::string_view name) {
  if (column.size() == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("row block: column ", name, " has ", column.size(),
                                                 " elements for ", rows, " rows"));
}

template <typename Column>
absl::Status CheckLengthOrEmpty(const Column& column, int rows, absl::string_view name) {
  return column.empty() ? absl::OkStatus() : CheckLength(column, rows, name);
}

absl::Status CheckRefs(const google::protobuf::RepeatedField<uint32_t>& refs, int rows,
                       const google::protobuf::RepeatedField<uint32_t>& table,
                       absl::string_view name) {
  if (absl::Status status = CheckLength(refs, rows, name); !status.ok()) return status;
  uint32_t largest = 0;
  for (uint32_t ref : refs) largest = ref > largest ? ref : largest;
  if (rows == 0 || largest < static_cast<uint32_t>(table.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("row block: column ", name, " refers to entry ",
                                                 largest, " of a table of ", table.size()));
}

absl::Status CheckBeginsWithNone(const google::protobuf::RepeatedField<uint32_t>& table,
                                 absl::string_view name) {
  if (table.empty() || table.Get(0) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("row block: table ", name, " does not begin with number 0"));
}

absl::Status CheckOperations(const google::protobuf::RepeatedField<uint32_t>& column) {
  for (uint32_t value : column) {
    if ((value & kOperationMask) > v1::Operation_MAX) return Bad("unknown operation");
    if ((value >> kOperationBits) > v1::Confidence_MAX) return Bad("unknown confidence");
  }
  return absl::OkStatus();
}

absl::Status CheckHistograms(const google::protobuf::RepeatedField<uint32_t>& sizes,
                             const google::protobuf::RepeatedField<uint32_t>& deltas,
                             const google::protobuf::RepeatedField<uint64_t>& counts, int rows,
                             absl::string_view name) {
  if (absl::Status status = CheckLengthOrEmpty(sizes, rows, name); !status.ok()) return status;
  if (deltas.size() != counts.size())
    return Bad("histogram has unequal numbers of buckets and counts");
  const uint32_t* delta = deltas.data();
  const uint32_t* const end = delta + deltas.size();
  for (uint32_t size : sizes) {
    if (size > static_cast<size_t>(end - delta))
      return Bad("histogram claims more buckets than there are");
    uint64_t bucket = 0;
    for (uint32_t i = 0; i < size; ++i, ++delta) {
      if (i > 0 && *delta == 0) return Bad("histogram buckets are not increasing");
      bucket += *delta;
      if (bucket >= kHistogramBuckets) return Bad("histogram bucket is out of range");
    }
  }
  if (delta != end) return Bad("histogram buckets are left over");
  return absl::OkStatus();
}

// Reads one histogram whose buckets begin at element `at`.
void ReadHistogram(uint32_t size, const google::protobuf::RepeatedField<uint32_t>& deltas,
                   const google::protobuf::RepeatedField<uint64_t>& counts, int at,
                   SparseHistogram* out) {
  int bucket = 0;
  const uint32_t* delta = deltas.data() + at;
  const uint64_t* count = counts.data() + at;
  for (uint32_t i = 0; i < size; ++i) {
    bucket += static_cast<int>(delta[i]);
    out->Add(bucket, count[i]);
  }
}

// Key of a row as it is sorted: what changes least comes first.
std::array<uint32_t, 7> SortKey(const v1::RowBlock& b, int row) {
  return {b.device_ref(row),        b.op_confidence(row),     b.issuer_actor_ref(row),
          b.issuer_intent_ref(row), b.dirtier_actor_ref(row), b.dirtier_intent_ref(row),
          b.file_ref(row)};
}

template <typename Column>
void Permute(const std::vector<int>& order, Column* column) {
  if (column->empty()) return;
  Column sorted;
  sorted.Reserve(column->size());
  for (int row : order) sorted.Add(column->Get(row));
  column->Swap(&sorted);
}

void PermuteHistograms(const std::vector<int>& order, const HistogramColumns& columns) {
  std::vector<int> begins;
  int at = 0;
  for (uint32_t size : *columns.sizes) {
    begins.push_back(at);
    at += static_cast<int>(size);
  }
  google::protobuf::RepeatedField<uint32_t> deltas;
  google::protobuf::RepeatedField<uint64_t> counts;
  deltas.Reserve(columns.deltas->size());
  counts.Reserve(columns.counts->size());
  for (int row : order) {
    int begin = begins[static_cast<size_t>(row)];
    int size = static_cast<int>(columns.sizes->Get(row));
    deltas.Add(columns.deltas->begin() + begin, columns.deltas->begin() + begin + size);
    counts.Add(columns.counts->begin() + begin, columns.counts->begin() + begin + size);
  }
  columns.deltas->Swap(&deltas);
  columns.counts->Swap(&counts);
  Permute(order, columns.sizes);
}

void SortByKey(v1::RowBlock* b) {
  std::vector<std::array<uint32_t, 7>> keys;
  for (int row = 0; row < b->op_confidence_size(); ++row) keys.push_back(SortKey(*b, row));
  if (std::is_sorted(keys.begin(), keys.end())) return;
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&keys](int x, int y) {
    return keys[static_cast<size_t>(x)] < keys[static_cast<size_t>(y)];
  });
  for (auto* column :
       {b->mutable_dirtier_intent_ref(), b->mutable_issuer_intent_ref(),
        b->mutable_dirtier_actor_ref(), b->mutable_issuer_actor_ref(), b->mutable_device_ref(),
        b->mutable_file_ref(), b->mutable_op_confidence()}) {
    Permute(order, column);
  }
  for (auto* column : {b->mutable_ios(), b->mutable_bytes(), b->mutable_wait_ns(),
                       b->mutable_io_ns(), b->mutable_errors(), b->mutable_requeues()}) {
    Permute(order, column);
  }
  PermuteHistograms(order, {b->mutable_wait_buckets(), b->mutable_wait_bucket_delta(),
                            b->mutable_wait_bucket_count()});
  PermuteHistograms(
      order, {b->mutable_io_buckets(), b->mutable_io_bucket_delta(), b->mutable_io_bucket_count()});
}

}  // namespace

struct RowBlockBuilder::Impl {
  Order order = Order::kAsAdded;
  v1::RowBlock block;
  Table intents{true};
  Table actors{true};
  Table devices{false};
  Table files{true};
  size_t bytes = 0;
  size_t error_bytes = 0;
  size_t requeue_bytes = 0;
  bool any_error = false;
  bool any_requeue = false;
};

RowBlockBuilder::RowBlockBuilder(Order order) : impl_(std::make_unique<Impl>()) {
  impl_->order = order;
}
RowBlockBuilder::~RowBlockBuilder() = default;

void RowBlockBuilder::Add(const BlockRow& row) {
  Impl& m = *impl_;
  v1::RowBlock& b = m.block;
  auto add_key = [&m](google::protobuf::RepeatedField<uint32_t>* column, uint32_t value) {
    column->Add(value);
    m.bytes += VarintBytes(value);
  };
  auto add_value = [&m](google::protobuf::RepeatedField<uint64_t>* column, uint64_t value) {
    column->Add(value);
    m.bytes += VarintBytes(value);
  };
  add_key(b.mutable_dirtier_intent_ref(), m.intents.Ref(row.dirtier_intent, &m.bytes));
  add_key(b.mutable_issuer_intent_ref(), m.intents.Ref(row.issuer_intent, &m.bytes));
  add_key(b.mutable_dirtier_actor_ref(), m.actors.Ref(row.dirtier_actor, &m.bytes));
  add_key(b.mutable_issuer_actor_ref(), m.actors.Ref(row.issuer_actor, &m.bytes));
  add_key(b.mutable_device_ref(), m.devices.Ref(row.device, &m.bytes));
  add_key(b.mutable_file_ref(), m.files.Ref(row.file, &m.bytes));
  add_key(b.mutable_op_confidence(), static_cast<uint32_t>(row.operation) |
                                         static_cast<uint32_t>(row.confidence) << kOperationBits);
  add_value(b.mutable_ios(), row.ios);
  add_value(b.mutable_bytes(), row.bytes);
  add_value(b.mutable_wait_ns(), row.wait_ns);
  add_value(b.mutable_io_ns(), row.io_ns);
  b.add_errors(row.errors);
  m.error_bytes += VarintBytes(row.errors);
  m.any_error |= row.errors != 0;
  b.add_requeues(row.requeues);
  m.requeue_bytes += VarintBytes(row.requeues);
  m.any_requeue |= row.requeues != 0;
  m.bytes += AddHistogram(row.wait, {b.mutable_wait_buckets(), b.mutable_wait_bucket_delta(),
                                     b.mutable_wait_bucket_count()});
  m.bytes += AddHistogram(
      row.io, {b.mutable_io_buckets(), b.mutable_io_bucket_delta(), b.mutable_io_bucket_count()});
}

int RowBlockBuilder::rows() const { return impl_->block.op_confidence_size(); }

size_t RowBlockBuilder::approximate_bytes() const {
  const Impl& m = *impl_;
  return m.bytes + (m.any_error ? m.error_bytes : 0) + (m.any_requeue ? m.requeue_bytes : 0) +
         kColumns * kColumnOverheadBytes;
}

v1::RowBlock RowBlockBuilder::Finish() {
  Impl& m = *impl_;
  // Empty columns say "all zero"; almost every block can say so.
  if (!m.any_error) m.block.clear_errors();
  if (!m.any_requeue) m.block.clear_requeues();
  m.intents.MoveTo(m.block.mutable_intents());
  m.actors.MoveTo(m.block.mutable_actors());
  m.devices.MoveTo(m.block.mutable_devices());
  m.files.MoveTo(m.block.mutable_files());
  if (m.order == Order::kByKey) SortByKey(&m.block);
  v1::RowBlock out = std::move(m.block);
  m.block = v1::RowBlock();
  m.bytes = m.error_bytes = m.requeue_bytes = 0;
  m.any_error = m.any_requeue = false;
  return out;
}

absl::Status ValidateRowBlock(const v1::RowBlock& block, uint64_t max_rows) {
  const int rows = block.op_confidence_size();
  if (static_cast<uint64_t>(rows) > max_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block: ", rows, " rows, and at most ", max_rows, " are allowed"));
  }
  const absl::Status checks[] = {
      CheckBeginsWithNone(block.intents(), "intents"),
      CheckBeginsWithNone(block.actors(), "actors"),
      CheckBeginsWithNone(block.files(), "files"),
      CheckRefs(block.dirtier_intent_ref(), rows, block.intents(), "dirtier_intent_ref"),
      CheckRefs(block.issuer_intent_ref(), rows, block.intents(), "issuer_intent_ref"),
      CheckRefs(block.dirtier_actor_ref(), rows, block.actors(), "dirtier_actor_ref"),
      CheckRefs(block.issuer_actor_ref(), rows, block.actors(), "issuer_actor_ref"),
      CheckRefs(block.device_ref(), rows, block.devices(), "device_ref"),
      CheckRefs(block.file_ref(), rows, block.files(), "file_ref"),
      CheckOperations(block.op_confidence()),
      CheckLength(block.ios(), rows, "ios"),
      CheckLength(block.bytes(), rows, "bytes"),
      CheckLength(block.wait_ns(), rows, "wait_ns"),
      CheckLength(block.io_ns(), rows, "io_ns"),
      CheckLengthOrEmpty(block.errors(), rows, "errors"),
      CheckLengthOrEmpty(block.requeues(), rows, "requeues"),
      CheckHistograms(block.wait_buckets(), block.wait_bucket_delta(), block.wait_bucket_count(),
                      rows, "wait_buckets"),
      CheckHistograms(block.io_buckets(), block.io_bucket_delta(), block.io_bucket_count(), rows,
                      "io_buckets"),
  };
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

RowBlockReader::RowBlockReader(const v1::RowBlock& block) : block_(block) {}

bool RowBlockReader::Next(BlockRow* row, bool histograms) {
  if (row_ >= block_.op_confidence_size()) return false;
  const int i = row_++;
  const v1::RowBlock& b = block_;
  row->dirtier_intent = b.intents(static_cast<int>(b.dirtier_intent_ref(i)));
  row->issuer_intent = b.intents(static_cast<int>(b.issuer_intent_ref(i)));
  row->dirtier_actor = b.actors(static_cast<int>(b.dirtier_actor_ref(i)));
  row->issuer_actor = b.actors(static_cast<int>(b.issuer_actor_ref(i)));
  row->device = b.devices(static_cast<int>(b.device_ref(i)));
  row->file = b.files(static_cast<int>(b.file_ref(i)));
  row->operation = static_cast<v1::Operation>(b.op_confidence(i) & kOperationMask);
  row->confidence = static_cast<v1::Confidence>(b.op_confidence(i) >> kOperationBits);
  row->ios = b.ios(i);
  row->bytes = b.bytes(i);
  row->wait_ns = b.wait_ns(i);
  row->io_ns = b.io_ns(i);
  row->errors = b.errors().empty() ? 0 : b.errors(i);
  row->requeues = b.requeues().empty() ? 0 : b.requeues(i);
  row->wait.clear();
  row->io.clear();
  const uint32_t wait_size = b.wait_buckets().empty() ? 0 : b.wait_buckets(i);
  const uint32_t io_size = b.io_buckets().empty() ? 0 : b.io_buckets(i);
  if (histograms) {
    ReadHistogram(wait_size, b.wait_bucket_delta(), b.wait_bucket_count(), wait_at_, &row->wait);
    ReadHistogram(io_size, b.io_bucket_delta(), b.io_bucket_count(), io_at_, &row->io);
  }
  wait_at_ += static_cast<int>(wait_size);
  io_at_ += static_cast<int>(io_size);
  wait_size_ = wait_size;
  io_size_ = io_size;
  return true;
}

BucketSpan RowBlockReader::wait_buckets() const {
  const int at = wait_at_ - static_cast<int>(wait_size_);
  return {block_.wait_bucket_delta().data() + at, block_.wait_bucket_count().data() + at,
          wait_size_};
}

BucketSpan RowBlockReader::io_buckets() const {
  const int at = io_at_ - static_cast<int>(io_size_);
  return {block_.io_bucket_delta().data() + at, block_.io_bucket_count().data() + at, io_size_};
}

}  // namespace fleetblame
