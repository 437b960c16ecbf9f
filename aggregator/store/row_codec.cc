// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

#include "aggregator/store/bit_stream.h"
#include "aggregator/store/varint.h"
#include "common/histogram.h"

namespace fleetblame::aggregator {
namespace {

using Column32 = google::protobuf::RepeatedField<uint32_t>;
using Column64 = google::protobuf::RepeatedField<uint64_t>;

constexpr uint8_t kEncodingProto = 1;
constexpr uint8_t kEncodingBits = 2;

// A block cannot hold more, which keeps damaged headers from asking for memory.
constexpr uint64_t kMaxRows = uint64_t{1} << 22;
constexpr uint64_t kMaxBuckets = kMaxRows * 8;
constexpr uint64_t kMaxTable = 2 * kMaxRows + 1;
// Larger totals are left to encoding 1.
constexpr uint64_t kMaxTotal = uint64_t{1} << 62;
// More than any distance between buckets; damaged numbers are cut to it before they are added.
constexpr uint64_t kFarAway = 1 << 20;

enum Flag : uint64_t {
  kHasErrors = 1,
  kHasRequeues = 2,
  kSectors = 4,          // bytes are multiples of 512
  kHasWait = 8,          // histograms are there; the four below are per histogram
  kWaitTotalIsIos = 16,  // counts of each row sum up to its ios
  kWaitOrderly = 32,     // the lowest bucket is never above that of the mean; single IOs are in it
  kHasIo = 64,
  kIoTotalIsIos = 128,
  kIoOrderly = 256,
};
struct HistogramFlags {
  uint64_t has, total_is_ios, orderly;
};
constexpr HistogramFlags kWaitFlags{kHasWait, kWaitTotalIsIos, kWaitOrderly};
constexpr HistogramFlags kIoFlags{kHasIo, kIoTotalIsIos, kIoOrderly};

// Key columns in the order in which rows are sorted: what changes least comes first.
enum KeyColumn {
  kDevice,
  kOperation,
  kIssuerActor,
  kIssuerIntent,
  kActor,
  kIntent,
  kFile,
  kKeyColumns
};
constexpr int kOperationBits = 7;
// Varints in front of the sections.
constexpr int kHeaderNumbers = 6;

int WidthFor(size_t table) { return table <= 1 ? 0 : std::bit_width(table - 1); }

// Context of models that depend on how many IOs a row sums.
constexpr size_t kIosContexts = 24;
size_t IosContext(uint64_t ios) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(ios)), kIosContexts - 1);
}

// Everything that both directions must keep alike while they go from row to row.
struct KeyModels {
  RiceModel first_change{2};
  std::array<RiceModel, kKeyColumns> step;
};
struct ValueModels {
  RiceModel ios_width{2};
  std::array<RiceModel, 16> trailing;
  std::array<RiceModel, kIosContexts> odd_part;
  RiceModel wait_width{1};
  RiceModel io_width{1};
  RiceModel errors{0};
  RiceModel requeues{0};
  std::array<int64_t, 16> last_trailing{};  // by operation
  int64_t last_wait_width = 0;              // less that of ios
  int64_t last_io_width = 0;
};
struct HistogramModels {
  RiceModel total{0};
  std::array<RiceModel, kIosContexts> buckets;
  std::array<RiceModel, kIosContexts> lowest;
  std::array<RiceModel, kIosContexts> distance;
  std::array<RiceModel, kIosContexts> span;
};
// From so many IOs on, buckets stand so close together that a bit for each is as short as their
// distances, and faster to read.
constexpr uint64_t kDenseTotal = 8;
constexpr uint64_t kMaskBits = 32;

// Where the mean of a row would fall.
int MeanBucket(uint64_t sum_ns, uint64_t ios) {
  return HistogramBucket(ios == 0 ? 0 : sum_ns / ios);
}

// a / b; a division would be a quarter of the cost of reading a bucket.
constexpr auto kReciprocals = [] {
  std::array<uint64_t, kHistogramBuckets + 1> out{};
  for (uint64_t i = 1; i < out.size(); ++i) out[i] = (uint64_t{1} << 32) / i + 1;
  return out;
}();
FLEETBLAME_INLINE uint64_t Quotient(uint64_t a, uint64_t b) {
  // Below 2^24 the error of the reciprocal does not reach the next whole number.
  if (a < (1 << 24) && b < kReciprocals.size()) [[likely]]
    return a * kReciprocals[b] >> 32;
  return a / b;
}

// Rice parameter for one of `left` counts that share `excess`.
int ShareParameter(uint64_t excess, uint64_t left) {
  return std::bit_width(Quotient(excess, left) * 11 / 16);
}

// ---- encoding

// A table with only the entries that are used, ascending, and where each old entry went.
struct SortedTable {
  std::vector<uint32_t> numbers;
  std::vector<uint32_t> new_ref;
};

SortedTable SortTable(const Column32& table, std::initializer_list<const Column32*> refs,
                      bool begins_with_none) {
  std::vector<char> used(static_cast<size_t>(table.size()), 0);
  for (const Column32* column : refs) {
    for (uint32_t ref : *column) used[ref] = 1;
  }
  SortedTable out;
  if (begins_with_none) out.numbers.push_back(0);
  for (int i = 0; i < table.size(); ++i) {
    if (used[static_cast<size_t>(i)]) out.numbers.push_back(table.Get(i));
  }
  std::sort(out.numbers.begin(), out.numbers.end());
  out.numbers.erase(std::unique(out.numbers.begin(), out.numbers.end()), out.numbers.end());
  out.new_ref.resize(static_cast<size_t>(table.size()));
  for (int i = 0; i < table.size(); ++i) {
    if (!used[static_cast<size_t>(i)]) continue;
    auto at = std::lower_bound(out.numbers.begin(), out.numbers.end(), table.Get(i));
    out.new_ref[static_cast<size_t>(i)] = static_cast<uint32_t>(at - out.numbers.begin());
  }
  return out;
}

void PutTable(const std::vector<uint32_t>& numbers, BitWriter* out) {
  RiceModel model;
  out->PutRice(numbers.size(), 5);
  uint32_t last = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    model.Put(i == 0 ? numbers[0] : numbers[i] - last - 1, out);
    last = numbers[i];
  }
}

using Key = std::array<uint32_t, kKeyColumns>;

// One histogram of all rows: where each row's list begins, its total, and what may be left out.
struct HistogramView {
  const Column32* sizes;
  const Column32* deltas;
  const Column64* counts;
  const Column64* sums;
  HistogramFlags flags;
  struct Row {
    int begin = 0;
    int mean_bucket = 0;
    uint32_t buckets = 0;  // that are not empty
    uint64_t total = 0;
  };
  std::vector<Row> rows;
  uint64_t buckets = 0;

  bool present() const { return !sizes->empty(); }
  // The flags that hold; false when it cannot be told in encoding 2.
  bool Look(const Column64& ios, uint64_t* out) {
    if (!present()) return true;
    *out |= flags.has | flags.total_is_ios | flags.orderly;
    rows.resize(static_cast<size_t>(sizes->size()));
    int at = 0;
    for (int row = 0; row < sizes->size(); ++row) {
      Row& r = rows[static_cast<size_t>(row)];
      r.begin = at;
      r.mean_bucket = MeanBucket(sums->Get(row), ios.Get(row));
      int lowest = kHistogramBuckets;
      int bucket = 0;
      for (uint32_t i = 0; i < sizes->Get(row); ++i, ++at) {
        bucket += static_cast<int>(deltas->Get(at));
        uint64_t count = counts->Get(at);
        if (count == 0) continue;
        lowest = std::min(lowest, bucket);
        ++r.buckets;
        if (count > kMaxTotal || r.total + count > kMaxTotal) return false;
        r.total += count;
      }
      buckets += r.buckets;
      if (r.total != ios.Get(row)) *out &= ~flags.total_is_ios;
      if (r.total == 0) continue;
      if (lowest > r.mean_bucket || (r.total == 1 && lowest != r.mean_bucket)) {
        *out &= ~flags.orderly;
      }
    }
    return buckets <= kMaxBuckets;
  }
};

class Encoder {
 public:
  explicit Encoder(const v1::RowBlock& rows)
      : b_(rows),
        rows_(rows.op_confidence_size()),
        wait_{&rows.wait_buckets(),
              &rows.wait_bucket_delta(),
              &rows.wait_bucket_count(),
              &rows.wait_ns(),
              kWaitFlags,
              {},
              0},
        io_{&rows.io_buckets(),
            &rows.io_bucket_delta(),
            &rows.io_bucket_count(),
            &rows.io_ns(),
            kIoFlags,
            {},
            0} {}

  // False when the block is one that only encoding 1 can hold.
  bool Run(std::string* out) {
    if (static_cast<uint64_t>(rows_) > kMaxRows) return false;
    if (!wait_.Look(b_.ios(), &flags_) || !io_.Look(b_.ios(), &flags_)) return false;
    auto any = [](const Column64& c) {
      return std::any_of(c.begin(), c.end(), [](auto v) { return v != 0; });
    };
    if (any(b_.errors())) flags_ |= kHasErrors;
    if (any(b_.requeues())) flags_ |= kHasRequeues;
    if (std::all_of(b_.bytes().begin(), b_.bytes().end(), [](auto v) { return v % 512 == 0; })) {
      flags_ |= kSectors;
    }
    Sort();
    std::string main;
    std::string wait;
    main.reserve(static_cast<size_t>(rows_) * 10 + 64);
    wait.reserve(static_cast<size_t>(rows_) * 6 + 16);
    PutMain(&main);
    PutHistograms(wait_, &wait);
    PutVarint(static_cast<uint64_t>(rows_), out);
    PutVarint(flags_, out);
    PutVarint(main.size(), out);
    PutVarint(wait_.buckets, out);
    PutVarint(wait.size(), out);
    PutVarint(io_.buckets, out);
    *out += main;
    *out += wait;
    PutHistograms(io_, out);
    return true;
  }

 private:
  Key KeyOf(int row) const {
    return {devices_.new_ref[b_.device_ref(row)],
            b_.op_confidence(row),
            actors_.new_ref[b_.issuer_actor_ref(row)],
            intents_.new_ref[b_.issuer_intent_ref(row)],
            actors_.new_ref[b_.dirtier_actor_ref(row)],
            intents_.new_ref[b_.dirtier_intent_ref(row)],
            files_.new_ref[b_.file_ref(row)]};
  }

  void Sort() {
    intents_ = SortTable(b_.intents(), {&b_.dirtier_intent_ref(), &b_.issuer_intent_ref()}, true);
    actors_ = SortTable(b_.actors(), {&b_.dirtier_actor_ref(), &b_.issuer_actor_ref()}, true);
    devices_ = SortTable(b_.devices(), {&b_.device_ref()}, false);
    files_ = SortTable(b_.files(), {&b_.file_ref()}, true);
    widths_ = {WidthFor(devices_.numbers.size()), kOperationBits,
               WidthFor(actors_.numbers.size()),  WidthFor(intents_.numbers.size()),
               WidthFor(actors_.numbers.size()),  WidthFor(intents_.numbers.size()),
               WidthFor(files_.numbers.size())};
    keys_.reserve(static_cast<size_t>(rows_));
    for (int row = 0; row < rows_; ++row) keys_.push_back(KeyOf(row));
    order_.resize(static_cast<size_t>(rows_));
    if (std::accumulate(widths_.begin(), widths_.end(), 0) > 64) {
      std::iota(order_.begin(), order_.end(), 0);
      std::sort(order_.begin(), order_.end(), [this](int a, int b) {
        return keys_[static_cast<size_t>(a)] < keys_[static_cast<size_t>(b)];
      });
      return;
    }
    // Nearly always a key fits one integer, which sorts much faster.
    std::vector<std::pair<uint64_t, int>> packed(static_cast<size_t>(rows_));
    for (int row = 0; row < rows_; ++row) {
      uint64_t key = 0;
      for (size_t c = 0; c < kKeyColumns; ++c) {
        key = key << widths_[c] | keys_[static_cast<size_t>(row)][c];
      }
      packed[static_cast<size_t>(row)] = {key, row};
    }
    std::sort(packed.begin(), packed.end());
    std::transform(packed.begin(), packed.end(), order_.begin(),
                   [](const auto& at) { return at.second; });
  }

  void PutMain(std::string* out) {
    BitWriter bits(out);
    for (const SortedTable* table : {&intents_, &actors_, &devices_, &files_}) {
      PutTable(table->numbers, &bits);
    }
    KeyModels keys;
    ValueModels values;
    const Key* last = nullptr;
    for (int row : order_) {
      const Key& key = keys_[static_cast<size_t>(row)];
      PutKey(key, last, &keys, &bits);
      last = &key;
      PutValues(row, &values, &bits);
    }
    bits.Finish();
  }

  void PutKey(const Key& key, const Key* last, KeyModels* models, BitWriter* bits) const {
    size_t change = 0;
    if (last != nullptr) {
      while (change < kKeyColumns && key[change] == (*last)[change]) ++change;
      models->first_change.Put(kKeyColumns - change, bits);
      if (change == kKeyColumns) return;
      models->step[change].Put(key[change] - (*last)[change] - 1, bits);
      ++change;
    }
    for (; change < kKeyColumns; ++change) PutPlain(key, change, bits);
  }

  // A column about which nothing is known but the columns before it.
  void PutPlain(const Key& key, size_t column, BitWriter* bits) const {
    int width = widths_[column];
    if (width == 0) return;
    if (column == kActor || column == kIntent) {
      bool same = key[column] == key[column - 2];  // as the issuer's
      bits->Put(same, 1);
      if (same) return;
    } else if (column == kFile) {
      bits->Put(key[column] != 0, 1);
      if (key[column] == 0) return;
    }
    bits->Put(key[column], width);
  }

  static void PutSum(uint64_t sum, int64_t ios_width, int64_t* last, RiceModel* model,
                     BitWriter* bits) {
    int width = std::bit_width(sum);
    model->Put(ZigZag(width - ios_width - *last), bits);
    *last = width - ios_width;
    if (width > 1) bits->Put(sum & ((uint64_t{1} << (width - 1)) - 1), width - 1);
  }

  void PutValues(int row, ValueModels* m, BitWriter* bits) const {
    const uint64_t ios = b_.ios(row);
    const int ios_width = std::bit_width(ios);
    m->ios_width.Put(static_cast<uint64_t>(ios_width), bits);
    if (ios_width > 1) bits->Put(ios & ((uint64_t{1} << (ios_width - 1)) - 1), ios_width - 1);

    const uint64_t bytes = flags_ & kSectors ? b_.bytes(row) / 512 : b_.bytes(row);
    const size_t op = b_.op_confidence(row) & 15;
    const int64_t trailing = bytes == 0 ? 0 : 1 + std::countr_zero(bytes);
    m->trailing[op].Put(ZigZag(trailing - m->last_trailing[op]), bits);
    m->last_trailing[op] = trailing;
    // Split in two: a shift by 64 is no shift.
    if (bytes != 0) m->odd_part[IosContext(ios)].Put(bytes >> (trailing - 1) >> 1, bits);

    PutSum(b_.wait_ns(row), ios_width, &m->last_wait_width, &m->wait_width, bits);
    PutSum(b_.io_ns(row), ios_width, &m->last_io_width, &m->io_width, bits);
    if (flags_ & kHasErrors) m->errors.Put(b_.errors(row), bits);
    if (flags_ & kHasRequeues) m->requeues.Put(b_.requeues(row), bits);
  }

  void PutHistograms(const HistogramView& h, std::string* out) const {
    if (!h.present()) return;
    BitWriter bits(out);
    HistogramModels m;
    for (int row : order_) PutHistogram(h, row, &m, &bits);
    bits.Finish();
  }

  void PutLowest(const HistogramView& h, const HistogramView::Row& r, int bucket, RiceModel* model,
                 BitWriter* bits) const {
    model->Put(flags_ & h.flags.orderly ? static_cast<uint64_t>(r.mean_bucket - bucket)
                                        : ZigZag(r.mean_bucket - bucket),
               bits);
  }

  void PutDense(const HistogramView& h, const HistogramView::Row& r, const uint32_t* deltas,
                const uint64_t* counts, HistogramModels* m, BitWriter* bits) const {
    std::array<uint8_t, kHistogramBuckets + kMaskBits> there{};
    std::array<uint64_t, kHistogramBuckets> used;
    uint32_t size = 0;
    int lowest = 0;
    int bucket = 0;
    for (; size < r.buckets; ++deltas, ++counts) {
      bucket += static_cast<int>(*deltas);
      if (*counts == 0) continue;
      if (size == 0) lowest = bucket;
      there[static_cast<size_t>(bucket)] = 1;
      used[size++] = *counts;
    }
    const size_t context = IosContext(r.total);
    PutLowest(h, r, lowest, &m->lowest[context], bits);
    const int span = bucket - lowest;
    m->span[context].Put(static_cast<uint64_t>(span), bits);
    // A bit for each bucket between the lowest and the highest.
    for (int at = lowest + 1; at < bucket; at += static_cast<int>(kMaskBits)) {
      const int width = std::min(static_cast<int>(kMaskBits), bucket - at);
      uint64_t mask = 0;
      for (int i = 0; i < width; ++i) {
        mask |= uint64_t{there[static_cast<size_t>(at + i)]} << i;
      }
      bits->Put(mask, width);
    }
    const uint64_t excess = r.total - size;
    if (excess == 0) return;
    const int k = ShareParameter(excess, size);
    for (uint32_t i = 0; i + 1 < size; ++i) bits->PutRice(used[i] - 1, k);
  }

  void PutHistogram(const HistogramView& h, int row, HistogramModels* m, BitWriter* bits) const {
    const HistogramView::Row& r = h.rows[static_cast<size_t>(row)];
    if (!(flags_ & h.flags.total_is_ios)) {
      m->total.Put(ZigZag(static_cast<int64_t>(r.total - b_.ios(row))), bits);
    }
    if (r.total == 0) return;
    const size_t context = IosContext(r.total);
    const uint32_t* deltas = h.deltas->data() + r.begin;
    const uint64_t* counts = h.counts->data() + r.begin;
    if (r.total >= kDenseTotal) return PutDense(h, r, deltas, counts, m, bits);
    if (r.total > 1) m->buckets[context].Put(r.buckets - 1, bits);
    uint64_t left = r.buckets;
    uint64_t excess = r.total - left;
    int bucket = 0;
    int last = -1;
    for (; left > 0; ++deltas, ++counts) {
      bucket += static_cast<int>(*deltas);
      if (*counts == 0) continue;
      if (last >= 0) {
        m->distance[context].Put(static_cast<uint64_t>(bucket - last - 1), bits);
      } else if (r.total > 1 || !(flags_ & h.flags.orderly)) {
        PutLowest(h, r, bucket, &m->lowest[context], bits);
      }
      last = bucket;
      if (left > 1 && excess > 0) {
        bits->PutRice(*counts - 1, ShareParameter(excess, left));
        excess -= *counts - 1;
      }
      --left;
    }
  }

  const v1::RowBlock& b_;
  const int rows_;
  uint64_t flags_ = 0;
  HistogramView wait_;
  HistogramView io_;
  SortedTable intents_;
  SortedTable actors_;
  SortedTable devices_;
  SortedTable files_;
  std::array<int, kKeyColumns> widths_{};
  std::vector<Key> keys_;   // by row
  std::vector<int> order_;  // rows, sorted by key
};

// ---- decoding

absl::Status Damaged() { return absl::DataLossError("a stored block of rows is damaged"); }

bool GetTable(BitReader* in, Column32* out) {
  RiceModel model;
  uint64_t size = in->GetRice(5);
  if (size > kMaxTable || in->overrun()) return false;
  out->Clear();
  uint64_t last = 0;
  for (uint64_t i = 0; i < size; ++i) {
    uint64_t number = i == 0 ? model.Get(in) : last + 1 + model.Get(in);
    if (number > UINT32_MAX || in->overrun()) return false;
    out->Add(static_cast<uint32_t>(number));
    last = number;
  }
  return true;
}

class Decoder {
 public:
  Decoder(v1::RowBlock* rows, bool histograms) : b_(*rows), histograms_(histograms) {}

  absl::Status Run(std::string_view in) {
    uint64_t rows = 0;
    uint64_t main_bytes = 0;
    uint64_t wait_buckets = 0;
    uint64_t wait_bytes = 0;
    uint64_t io_buckets = 0;
    if (!TakeVarint(&in, &rows) || !TakeVarint(&in, &flags_) || !TakeVarint(&in, &main_bytes) ||
        !TakeVarint(&in, &wait_buckets) || !TakeVarint(&in, &wait_bytes) ||
        !TakeVarint(&in, &io_buckets) || rows > kMaxRows || main_bytes > in.size() ||
        wait_bytes > in.size() - main_bytes || rows > main_bytes * 8 ||
        wait_buckets > kMaxBuckets || io_buckets > kMaxBuckets) {
      return Damaged();
    }
    rows_ = static_cast<int>(rows);
    if (!GetMain(in.substr(0, main_bytes))) return Damaged();
    b_.clear_wait_buckets();
    b_.clear_wait_bucket_delta();
    b_.clear_wait_bucket_count();
    b_.clear_io_buckets();
    b_.clear_io_bucket_delta();
    b_.clear_io_bucket_count();
    if (!histograms_) return absl::OkStatus();
    if (!GetHistograms(in.substr(main_bytes, wait_bytes), kWaitFlags, wait_buckets, b_.wait_ns(),
                       b_.mutable_wait_buckets(), b_.mutable_wait_bucket_delta(),
                       b_.mutable_wait_bucket_count()) ||
        !GetHistograms(in.substr(main_bytes + wait_bytes), kIoFlags, io_buckets, b_.io_ns(),
                       b_.mutable_io_buckets(), b_.mutable_io_bucket_delta(),
                       b_.mutable_io_bucket_count())) {
      return Damaged();
    }
    return absl::OkStatus();
  }

 private:
  uint32_t* Make(Column32* column) {
    column->Resize(rows_, 0);
    return column->mutable_data();
  }
  uint64_t* Make(Column64* column) {
    column->Resize(rows_, 0);
    return column->mutable_data();
  }

  bool GetMain(std::string_view in) {
    BitReader tables(in);
    if (!GetTable(&tables, b_.mutable_intents()) || !GetTable(&tables, b_.mutable_actors()) ||
        !GetTable(&tables, b_.mutable_devices()) || !GetTable(&tables, b_.mutable_files())) {
      return false;
    }
    BitReader bits = tables;  // one that stays in registers
    for (const Column32* table : {&b_.intents(), &b_.actors(), &b_.files()}) {
      if (table->empty() || table->Get(0) != 0) return false;
    }
    if (rows_ > 0 && b_.devices().empty()) return false;
    sizes_ = {static_cast<uint32_t>(b_.devices_size()), 1u << kOperationBits,
              static_cast<uint32_t>(b_.actors_size()),  static_cast<uint32_t>(b_.intents_size()),
              static_cast<uint32_t>(b_.actors_size()),  static_cast<uint32_t>(b_.intents_size()),
              static_cast<uint32_t>(b_.files_size())};
    for (size_t c = 0; c < kKeyColumns; ++c) {
      widths_[c] = c == kOperation ? kOperationBits : WidthFor(sizes_[c]);
    }
    std::array<uint32_t*, kKeyColumns> out = {
        Make(b_.mutable_device_ref()),        Make(b_.mutable_op_confidence()),
        Make(b_.mutable_issuer_actor_ref()),  Make(b_.mutable_issuer_intent_ref()),
        Make(b_.mutable_dirtier_actor_ref()), Make(b_.mutable_dirtier_intent_ref()),
        Make(b_.mutable_file_ref())};
    uint64_t* ios = Make(b_.mutable_ios());
    uint64_t* bytes = Make(b_.mutable_bytes());
    uint64_t* wait_ns = Make(b_.mutable_wait_ns());
    uint64_t* io_ns = Make(b_.mutable_io_ns());
    b_.clear_errors();
    b_.clear_requeues();
    uint64_t* errors = flags_ & kHasErrors ? Make(b_.mutable_errors()) : nullptr;
    uint64_t* requeues = flags_ & kHasRequeues ? Make(b_.mutable_requeues()) : nullptr;

    KeyModels keys;
    ValueModels m;
    Key key{};
    for (int row = 0; row < rows_; ++row) {
      if (!GetKey(row == 0, &keys, &bits, &key)) return false;
      for (size_t c = 0; c < kKeyColumns; ++c) out[c][row] = key[c];
      uint64_t ios_width = m.ios_width.Get(&bits);
      if (ios_width > 64) return false;
      ios[row] = GetMantissa(static_cast<int>(ios_width), &bits);

      const size_t op = key[kOperation] & 15;
      int64_t trailing = m.last_trailing[op] + UnZigZag(m.trailing[op].Get(&bits));
      if (trailing < 0 || trailing > 64) return false;
      m.last_trailing[op] = trailing;
      bytes[row] = 0;
      if (trailing > 0) {
        uint64_t odd = m.odd_part[IosContext(ios[row])].Get(&bits) << 1 | 1;
        bytes[row] = (odd << (trailing - 1)) * (flags_ & kSectors ? 512 : 1);
      }
      auto width = static_cast<int64_t>(ios_width);
      if (!GetSum(width, &m.last_wait_width, &m.wait_width, &bits, &wait_ns[row]) ||
          !GetSum(width, &m.last_io_width, &m.io_width, &bits, &io_ns[row])) {
        return false;
      }
      if (errors != nullptr) errors[row] = m.errors.Get(&bits);
      if (requeues != nullptr) requeues[row] = m.requeues.Get(&bits);
    }
    return !bits.overrun();
  }

  FLEETBLAME_INLINE bool GetKey(bool first, KeyModels* models, BitReader* bits, Key* key) const {
    size_t change = 0;
    if (!first) {
      uint64_t back = models->first_change.Get(bits);
      if (back > kKeyColumns) return false;
      change = kKeyColumns - back;
      if (change == kKeyColumns) return true;
      uint64_t value = (*key)[change] + uint64_t{1} + models->step[change].Get(bits);
      if (value >= sizes_[change]) return false;
      (*key)[change] = static_cast<uint32_t>(value);
      ++change;
    }
    for (; change < kKeyColumns; ++change) {
      if (!GetPlain(bits, change, key)) return false;
    }
    const uint32_t op = (*key)[kOperation];
    return (op & 15) <= v1::Operation_MAX && (op >> 4) <= v1::Confidence_MAX;
  }

  FLEETBLAME_INLINE bool GetPlain(BitReader* bits, size_t column, Key* key) const {
    (*key)[column] = 0;
    int width = widths_[column];
    if (width == 0) return true;
    if (column == kActor || column == kIntent) {
      if (bits->Get(1)) {
        (*key)[column] = (*key)[column - 2];
        return true;
      }
    } else if (column == kFile) {
      if (!bits->Get(1)) return true;
    }
    (*key)[column] = static_cast<uint32_t>(bits->Get(width));
    return (*key)[column] < sizes_[column];
  }

  FLEETBLAME_INLINE static uint64_t GetMantissa(int width, BitReader* bits) {
    if (width <= 1) return static_cast<uint64_t>(width);
    return uint64_t{1} << (width - 1) | bits->Get(width - 1);
  }

  FLEETBLAME_INLINE static bool GetSum(int64_t ios_width, int64_t* last, RiceModel* model,
                                       BitReader* bits, uint64_t* sum) {
    int64_t width = UnZigZag(model->Get(bits)) + ios_width + *last;
    if (width < 0 || width > 64) return false;
    *last = width - ios_width;
    *sum = GetMantissa(static_cast<int>(width), bits);
    return true;
  }

  FLEETBLAME_INLINE static bool GetDense(uint64_t total, bool orderly, int64_t bucket,
                                         HistogramModels* m, uint64_t* free, uint32_t* size,
                                         uint32_t** deltas, uint64_t** counts, BitReader* bits) {
    const size_t context = IosContext(total);
    const uint64_t lowest = m->lowest[context].Get(bits);
    bucket -= orderly ? static_cast<int64_t>(std::min(lowest, kFarAway)) : UnZigZag(lowest);
    const uint64_t span = m->span[context].Get(bits);
    if (bucket < 0 || bucket >= kHistogramBuckets || span >= kHistogramBuckets ||
        bucket + static_cast<int64_t>(span) >= kHistogramBuckets) {
      return false;
    }
    std::array<uint32_t, kHistogramBuckets + 2> steps;
    uint64_t left = 0;
    steps[left++] = static_cast<uint32_t>(bucket);
    uint64_t last = 0;  // all of it counted from the lowest
    for (uint64_t at = 1; at < span; at += kMaskBits) {
      uint64_t mask = bits->Get(static_cast<int>(std::min(kMaskBits, span - at)));
      for (; mask != 0; mask &= mask - 1) {
        const uint64_t here = at + static_cast<uint64_t>(std::countr_zero(mask));
        steps[left++] = static_cast<uint32_t>(here - last);
        last = here;
      }
    }
    if (span > 0) steps[left++] = static_cast<uint32_t>(span - last);
    if (left > *free || left > total) return false;
    *free -= left;
    *size = static_cast<uint32_t>(left);
    std::copy_n(steps.begin(), left, *deltas);
    *deltas += left;
    uint64_t excess = total - left;
    const int k = ShareParameter(excess, left);
    uint64_t* count = *counts;
    *counts += left;
    if (excess == 0) {
      std::fill_n(count, left, 1);
      return true;
    }
    for (; left > 1; --left) {
      const uint64_t more = bits->GetRice(k);
      if (more > excess) return false;
      excess -= more;
      *count++ = more + 1;
    }
    *count = excess + 1;
    return true;
  }

  bool GetHistograms(std::string_view in, const HistogramFlags& flags, uint64_t buckets,
                     const Column64& sums, Column32* sizes, Column32* deltas, Column64* counts) {
    if (!(flags_ & flags.has)) return true;
    if (buckets > in.size() * 8 + static_cast<uint64_t>(rows_)) return false;
    uint32_t* size = Make(sizes);
    deltas->Resize(static_cast<int>(buckets), 0);
    counts->Resize(static_cast<int>(buckets), 0);
    uint32_t* delta = deltas->mutable_data();
    uint64_t* count = counts->mutable_data();
    uint64_t free = buckets;
    BitReader bits(in);
    HistogramModels m;
    const bool total_is_ios = flags_ & flags.total_is_ios;
    const bool orderly = flags_ & flags.orderly;
    const uint64_t* ios = b_.ios().data();
    const uint64_t* sum = sums.data();
    for (int row = 0; row < rows_; ++row) {
      uint64_t total = ios[row];
      if (!total_is_ios) total += static_cast<uint64_t>(UnZigZag(m.total.Get(&bits)));
      if (total == 0) continue;
      int64_t bucket = MeanBucket(sum[row], ios[row]);
      if (total == 1 && orderly) {
        if (free == 0) return false;
        --free;
        size[row] = 1;
        *delta++ = static_cast<uint32_t>(bucket);
        *count++ = 1;
        continue;
      }
      if (total >= kDenseTotal) {
        if (!GetDense(total, orderly, bucket, &m, &free, &size[row], &delta, &count, &bits)) {
          return false;
        }
        continue;
      }
      const size_t context = IosContext(total);
      uint64_t left = 1 + (total > 1 ? m.buckets[context].Get(&bits) : 0);
      if (left > free || left > total) return false;
      free -= left;
      size[row] = static_cast<uint32_t>(left);
      uint64_t excess = total - left;
      const uint64_t lowest = m.lowest[context].Get(&bits);
      bucket -= orderly ? static_cast<int64_t>(std::min(lowest, kFarAway)) : UnZigZag(lowest);
      if (bucket < 0 || bucket >= kHistogramBuckets) return false;
      *delta++ = static_cast<uint32_t>(bucket);
      RiceModel distance = m.distance[context];
      for (; left > 1; --left) {
        uint64_t more = 0;
        if (excess > 0) {
          more = bits.GetRice(ShareParameter(excess, left));
          if (more > excess) return false;
          excess -= more;
        }
        *count++ = more + 1;
        const uint64_t step = 1 + std::min(distance.GetSecond(&bits), kFarAway);
        bucket += static_cast<int64_t>(step);
        if (bucket >= kHistogramBuckets) return false;
        *delta++ = static_cast<uint32_t>(step);
      }
      *count++ = excess + 1;
      m.distance[context] = distance;
    }
    return free == 0 && !bits.overrun();
  }

  v1::RowBlock& b_;
  const bool histograms_;
  uint64_t flags_ = 0;
  int rows_ = 0;
  std::array<uint32_t, kKeyColumns> sizes_{};
  std::array<int, kKeyColumns> widths_{};
};

}  // namespace

std::string EncodeRows(const v1::RowBlock& rows, uint64_t span_ns) {
  std::string out;
  out.push_back(static_cast<char>(kEncodingBits));
  PutVarint(span_ns, &out);
  if (Encoder(rows).Run(&out)) return out;
  out.clear();
  out.push_back(static_cast<char>(kEncodingProto));
  PutVarint(span_ns, &out);
  rows.AppendPartialToString(&out);
  return out;
}

absl::Status DecodeRows(std::string_view value, v1::RowBlock* rows, uint64_t* span_ns,
                        bool histograms) {
  if (value.empty()) return Damaged();
  const auto encoding = static_cast<uint8_t>(value.front());
  value.remove_prefix(1);
  if (!TakeVarint(&value, span_ns)) return Damaged();
  if (encoding == kEncodingBits) return Decoder(rows, histograms).Run(value);
  if (encoding != kEncodingProto) {
    return absl::DataLossError("a stored block of rows has an unknown encoding");
  }
  if (!rows->ParseFromArray(value.data(), static_cast<int>(value.size()))) return Damaged();
  return absl::OkStatus();
}

absl::Status MentionsIntents(std::string_view value, std::span<const uint32_t> intents,
                             bool* mentioned) {
  *mentioned = true;
  uint64_t span_ns = 0;
  if (value.empty() || value.front() != static_cast<char>(kEncodingBits)) return absl::OkStatus();
  value.remove_prefix(1);
  if (!TakeVarint(&value, &span_ns)) return Damaged();
  for (int i = 0; i < kHeaderNumbers; ++i) {
    uint64_t ignored = 0;
    if (!TakeVarint(&value, &ignored)) return Damaged();
  }
  Column32 table;
  BitReader bits(value);
  if (!GetTable(&bits, &table)) return Damaged();
  *mentioned = std::any_of(table.begin(), table.end(), [intents](uint32_t n) {
    return n != 0 && std::binary_search(intents.begin(), intents.end(), n);
  });
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
