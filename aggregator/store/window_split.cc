// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/window_split.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "aggregator/store/bit_stream.h"
#include "aggregator/store/row_codec.h"
#include "aggregator/store/row_keys.h"
#include "aggregator/store/varint.h"
#include "common/histogram.h"

namespace fleetblame::aggregator {
namespace {

using Column32 = google::protobuf::RepeatedField<uint32_t>;
using Column64 = google::protobuf::RepeatedField<uint64_t>;

constexpr char kEncodingSplit = 3;
// Counts of a row beyond this are left to the windows' own encoding; products of two of them fit.
constexpr uint64_t kMaxCount = uint64_t{1} << 31;
// Widths of buckets are powers of two; the last one has no end and is taken to be this wide.
constexpr int kWidthBits = 34;

enum Flag : uint64_t {
  kSectors = 1,          // bytes are multiples of 512
  kEachHasIos = 2,       // no row of a window has none
  kHasErrors = 4,        // any row
  kHasRequeues = 8,      //
  kHasWait = 16,         // histograms are there
  kWaitTotalIsIos = 32,  // counts of each row of a window sum up to its ios
  kWaitOrderly = 64,     // a single IO lies in its bucket
  kHasIo = 128,
  kIoTotalIsIos = 256,
  kIoOrderly = 512,
};
struct HistogramFlags {
  uint64_t has, total_is_ios, orderly;
};
constexpr HistogramFlags kWaitFlags{kHasWait, kWaitTotalIsIos, kWaitOrderly};
constexpr HistogramFlags kIoFlags{kHasIo, kIoTotalIsIos, kIoOrderly};

// HistogramLowerNs in a table.
const std::array<uint64_t, kHistogramBuckets> kLowers = [] {
  std::array<uint64_t, kHistogramBuckets> out{};
  for (int b = 0; b < kHistogramBuckets; ++b) out[static_cast<size_t>(b)] = HistogramLowerNs(b);
  return out;
}();

uint32_t Checksum(std::string_view value) {
  return static_cast<uint32_t>(XXH3_64bits(value.data(), value.size()));
}

// ---- what both directions do alike. A coder's Put... returns the number that it wrote, or instead
// of the one it was given the one that it read, so that one text serves both.

class WritingCoder {
 public:
  static constexpr bool kReading = false;
  explicit WritingCoder(std::string* out) : bits_(out) {}
  uint64_t Plain(uint64_t value, int width) {
    bits_.Put(value, width);
    return value;
  }
  uint64_t Rice(uint64_t value, int k) {
    bits_.PutRice(value, k);
    return value;
  }
  uint64_t Learned(uint64_t value, RiceModel* model) {
    model->Put(value, &bits_);
    return value;
  }
  void Finish() { bits_.Finish(); }

 private:
  BitWriter bits_;
};

class ReadingCoder {
 public:
  static constexpr bool kReading = true;
  explicit ReadingCoder(std::string_view in) : bits_(in) {}
  uint64_t Plain(uint64_t, int width) { return bits_.Get(width); }
  uint64_t Rice(uint64_t, int k) { return bits_.GetRice(k); }
  uint64_t Learned(uint64_t, RiceModel* model) { return model->Get(&bits_); }
  bool overrun() const { return bits_.overrun(); }

 private:
  BitReader bits_;
};

constexpr size_t kIosContexts = 12;
size_t IosContext(uint64_t ios) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(ios)), kIosContexts - 1);
}

int BitWidth(uint64_t value) { return static_cast<int>(std::bit_width(value)); }
int ParameterForMean(uint64_t mean) { return BitWidth(mean * 11 / 16); }

// value * part / whole without leaving 64 bits; part and whole below kMaxCount.
uint64_t Scale(uint64_t value, uint64_t part, uint64_t whole) {
  return value / whole * part + value % whole * part / whole;
}

int64_t Difference(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b); }

uint64_t Lower(int bucket) { return kLowers[static_cast<size_t>(bucket)]; }
int WidthBits(int bucket) {
  if (bucket == 0) return kHistogramFirstOctave;
  if (bucket == kHistogramBuckets - 1) return kWidthBits;
  return kHistogramFirstOctave + (bucket - 1) / kHistogramSubBuckets - 3;
}
static_assert(kHistogramSubBuckets == 8);

// Lower bound and width of what some IOs may sum up to.
struct Bounds {
  uint64_t lower = 0;
  uint64_t width = 0;
  void Add(int bucket, uint64_t count) {
    lower += Lower(bucket) * count;
    width += count << WidthBits(bucket);
  }
  uint64_t middle() const { return lower + width / 2; }
};

// Buckets of one histogram of a row that no window has claimed yet, and one claim on them.
struct Pool {
  size_t size = 0;
  uint64_t total = 0;
  std::array<uint16_t, kHistogramBuckets> bucket;
  std::array<uint64_t, kHistogramBuckets> count;
  // The claim: which buckets, as places in the arrays above, and how many of each.
  size_t claims = 0;
  std::array<uint16_t, kHistogramBuckets> claim_at;
  std::array<uint64_t, kHistogramBuckets> claim_count;
  Bounds bounds;  // of all IOs that are left
  Bounds claim_bounds;

  // False for absurd counts.
  bool Load(uint32_t buckets, const uint32_t* deltas, const uint64_t* counts) {
    size = 0;
    total = 0;
    bounds = Bounds();
    uint32_t at = 0;
    for (uint32_t i = 0; i < buckets; ++i) {
      at += deltas[i];
      if (counts[i] == 0) continue;
      if (counts[i] >= kMaxCount || size >= bucket.size()) return false;
      bounds.Add(static_cast<int>(at), counts[i]);
      bucket[size] = static_cast<uint16_t>(at);
      count[size++] = counts[i];
      total += counts[i];
    }
    return total < kMaxCount;
  }
  void PutClaim(size_t at, uint64_t n) {
    claim_at[claims] = static_cast<uint16_t>(at);
    claim_count[claims++] = n;
  }
  // Notes what a window has; false when that is not there.
  bool Claim(uint32_t buckets, const uint32_t* deltas, const uint64_t* counts) {
    claims = 0;
    uint32_t at = 0;
    size_t p = 0;
    for (uint32_t i = 0; i < buckets; ++i) {
      at += deltas[i];
      if (counts[i] == 0) continue;
      while (p < size && bucket[p] < at) ++p;
      if (p == size || bucket[p] != at || counts[i] > count[p]) return false;
      PutClaim(p, counts[i]);
    }
    return true;
  }
  void ClaimAll() {
    claims = 0;
    for (size_t i = 0; i < size; ++i) PutClaim(i, count[i]);
  }
  // Bounds of the claim; TakeClaim relies on them.
  const Bounds& BoundClaim() {
    claim_bounds = Bounds();
    for (size_t i = 0; i < claims; ++i) claim_bounds.Add(bucket[claim_at[i]], claim_count[i]);
    return claim_bounds;
  }
  void TakeClaim() {
    bounds.lower -= claim_bounds.lower;
    bounds.width -= claim_bounds.width;
    size_t kept = size;  // as far as no bucket is empty
    for (size_t i = 0; i < claims; ++i) {
      const size_t at = claim_at[i];
      total -= claim_count[i];
      count[at] -= claim_count[i];
      if (count[at] == 0 && kept == size) kept = at;
    }
    for (size_t i = kept; i < size; ++i) {
      if (count[i] == 0) continue;
      bucket[kept] = bucket[i];
      count[kept++] = count[i];
    }
    size = kept;
  }
};

struct Models {
  RiceModel unit{1};
  RiceModel bytes_of_none{2};
  std::array<RiceModel, kIosContexts> bytes;
  RiceModel errors{0};
  RiceModel requeues{0};
  RiceModel sum_of_none{0};
};

// Which of the pool `wanted` IOs are: how many buckets are passed over, and how many of the next.
template <typename Coder>
bool CodeClaim(Coder* c, Pool* pool, uint64_t wanted) {
  if constexpr (Coder::kReading) pool->claims = 0;
  auto put = [pool](size_t at, uint64_t n) {
    if constexpr (Coder::kReading) pool->PutClaim(at, n);
  };
  uint64_t there = pool->total;
  size_t at = 0;
  size_t done = 0;  // claims written
  while (wanted > 0) {
    const size_t left = pool->size - at;
    if (wanted > there || left == 0) return false;
    if (wanted == there) {
      for (; at < pool->size; ++at) put(at, pool->count[at]);
      return true;
    }
    if (left == 1) {
      put(at, wanted);
      return true;
    }
    uint64_t skipped = 0;
    uint64_t actual = 0;
    if constexpr (!Coder::kReading) {
      skipped = pool->claim_at[done] - at;
      actual = pool->claim_count[done++];
    }
    skipped = c->Rice(skipped, ParameterForMean(left / (wanted + 1)));
    if (skipped >= left) return false;
    for (; skipped > 0; --skipped) there -= pool->count[at++];
    const uint64_t count = pool->count[at];
    const uint64_t most = std::min(count, wanted);
    uint64_t taken = 1;
    if (most > 1) {
      if (wanted > there) return false;
      const uint64_t expected = wanted * count / there;
      if (expected < 4) {
        taken = 1 + c->Rice(actual - 1, ParameterForMean(expected));
      } else {
        taken =
            expected + static_cast<uint64_t>(UnZigZag(c->Rice(ZigZag(Difference(actual, expected)),
                                                              (BitWidth(expected) + 1) / 2)));
      }
      if (taken == 0 || taken > most) return false;
    }
    put(at, taken);
    wanted -= taken;
    there -= count;
    ++at;
  }
  return true;
}

// The sum of the claimed ones of `ios` IOs out of a pool with a sum of `rest`.
template <typename Coder>
uint64_t CodeSum(Coder* c, Pool* pool, uint64_t claimed, uint64_t rest, uint64_t sum, bool orderly,
                 Models* m) {
  if (claimed == 0) {
    pool->claim_bounds = Bounds();
    return c->Learned(sum, &m->sum_of_none);
  }
  const Bounds& mine = pool->BoundClaim();
  if (claimed == 1 && orderly) {
    return mine.lower + c->Plain(sum - mine.lower, BitWidth(mine.width) - 1);
  }
  // Where all of them lie above the middle of their buckets, a part of them does too.
  const int64_t above = Difference(rest, pool->bounds.middle()) / static_cast<int64_t>(pool->total);
  const uint64_t expected = mine.middle() + static_cast<uint64_t>(above) * claimed;
  // The deviation grows with the square root of their number.
  const int k = std::max(0, BitWidth(mine.width / claimed) + BitWidth(claimed) / 2 - 3);
  return expected + static_cast<uint64_t>(UnZigZag(c->Rice(ZigZag(Difference(sum, expected)), k)));
}

// One row of the bucket less what windows have taken of it.
struct Rest {
  uint64_t ios = 0;
  uint64_t bytes = 0;  // in units of 1 << unit (and sectors, if kSectors)
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
  Pool wait;
  Pool io;
};

struct Share {
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
  uint64_t waits = 0;  // counts of the histograms
  uint64_t io_count = 0;
};

template <typename Coder>
bool CodeHistogram(Coder* c, const HistogramFlags& flags, uint64_t set, uint64_t ios,
                   uint64_t windows, Pool* pool, uint64_t* claimed, uint64_t* sum, uint64_t rest,
                   Models* m) {
  if (!(set & flags.has)) {
    *sum = c->Rice(*sum, ParameterForMean(rest / windows));
    return true;
  }
  *claimed =
      set & flags.total_is_ios ? ios : c->Rice(*claimed, ParameterForMean(pool->total / windows));
  if (*claimed > pool->total || !CodeClaim(c, pool, *claimed)) return false;
  *sum = CodeSum(c, pool, *claimed, rest, *sum, set & flags.orderly, m);
  return true;
}

// The share of one of `windows` windows that are left, not the last.
template <typename Coder>
bool CodeShare(Coder* c, uint64_t set, uint64_t windows, Rest* rest, Share* share, Models* m) {
  if (set & kEachHasIos) {
    if (rest->ios < windows) return false;
    share->ios = 1 + c->Rice(share->ios - 1, ParameterForMean((rest->ios - windows) / windows));
  } else {
    share->ios = c->Rice(share->ios, ParameterForMean(rest->ios / windows));
  }
  if (share->ios > rest->ios) return false;
  if (share->ios == 0) {
    share->bytes = c->Learned(share->bytes, &m->bytes_of_none);
  } else {
    const uint64_t expected = Scale(rest->bytes, share->ios, rest->ios);
    share->bytes = expected + static_cast<uint64_t>(
                                  UnZigZag(c->Learned(ZigZag(Difference(share->bytes, expected)),
                                                      &m->bytes[IosContext(share->ios)])));
  }
  if (set & kHasErrors) share->errors = c->Learned(share->errors, &m->errors);
  if (set & kHasRequeues) share->requeues = c->Learned(share->requeues, &m->requeues);
  return CodeHistogram(c, kWaitFlags, set, share->ios, windows, &rest->wait, &share->waits,
                       &share->wait_ns, rest->wait_ns, m) &&
         CodeHistogram(c, kIoFlags, set, share->ios, windows, &rest->io, &share->io_count,
                       &share->io_ns, rest->io_ns, m);
}

void Subtract(const Share& share, uint64_t set, Rest* rest) {
  rest->ios -= share.ios;
  rest->bytes -= share.bytes;
  rest->wait_ns -= share.wait_ns;
  rest->io_ns -= share.io_ns;
  rest->errors -= share.errors;
  rest->requeues -= share.requeues;
  if (set & kHasWait) rest->wait.TakeClaim();
  if (set & kHasIo) rest->io.TakeClaim();
}

// The last window's share.
Share TakeAll(uint64_t set, Rest* rest) {
  Share share{rest->ios,    rest->bytes,    rest->wait_ns,    rest->io_ns,
              rest->errors, rest->requeues, rest->wait.total, rest->io.total};
  if (set & kHasWait) rest->wait.ClaimAll();
  if (set & kHasIo) rest->io.ClaimAll();
  return share;
}

uint64_t At(const Column64& column, int row) { return column.empty() ? 0 : column.Get(row); }

// Walks a histogram's flattened buckets row by row.
class BucketCursor {
 public:
  BucketCursor(const Column32& sizes, const Column32& deltas, const Column64& counts)
      : sizes_(sizes), deltas_(deltas.data()), counts_(counts.data()) {}
  void Next(int row) {
    size_ = sizes_.empty() ? 0 : sizes_.Get(row);
    delta_ = deltas_ + at_;
    count_ = counts_ + at_;
    at_ += size_;
  }
  uint32_t size() const { return size_; }
  const uint32_t* deltas() const { return delta_; }
  const uint64_t* counts() const { return count_; }
  uint64_t total() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < size_; ++i) sum += count_[i];
    return sum;
  }

 private:
  const Column32& sizes_;
  const uint32_t* deltas_;
  const uint64_t* counts_;
  size_t at_ = 0;
  uint32_t size_ = 0;
  const uint32_t* delta_ = nullptr;
  const uint64_t* count_ = nullptr;
};

bool LoadRest(const v1::RowBlock& b, int row, uint64_t set, const BucketCursor& wait,
              const BucketCursor& io, Rest* rest) {
  rest->ios = b.ios(row);
  rest->bytes = set & kSectors ? b.bytes(row) / 512 : b.bytes(row);
  rest->wait_ns = b.wait_ns(row);
  rest->io_ns = b.io_ns(row);
  rest->errors = At(b.errors(), row);
  rest->requeues = At(b.requeues(), row);
  rest->wait.size = rest->io.size = 0;
  rest->wait.total = rest->io.total = 0;
  return rest->ios < kMaxCount &&
         (!(set & kHasWait) || rest->wait.Load(wait.size(), wait.deltas(), wait.counts())) &&
         (!(set & kHasIo) || rest->io.Load(io.size(), io.deltas(), io.counts()));
}

// ---- encoding

struct EncodedWindow {
  const v1::RowBlock* rows;
  std::vector<RowKey> keys;
  BucketCursor wait;
  BucketCursor io;
  int next = 0;  // row

  bool AtEnd() const { return static_cast<size_t>(next) >= keys.size(); }
  bool Has(RowKey key) const { return !AtEnd() && keys[static_cast<size_t>(next)] == key; }
};

// What holds for all windows.
uint64_t FlagsOf(std::span<const SplitWindow> windows) {
  uint64_t set =
      kSectors | kEachHasIos | kWaitTotalIsIos | kWaitOrderly | kIoTotalIsIos | kIoOrderly;
  auto look = [&set](const v1::RowBlock& b, BucketCursor cursor, const Column64& sums,
                     const HistogramFlags& flags) {
    for (int row = 0; row < b.op_confidence_size(); ++row) {
      cursor.Next(row);
      const uint64_t total = cursor.total();
      if (total != 0) set |= flags.has;
      if (total != b.ios(row)) set &= ~flags.total_is_ios;
      if (total != 1) continue;
      const int bucket = static_cast<int>(cursor.deltas()[0]);
      if (HistogramBucket(sums.Get(row)) != bucket ||
          sums.Get(row) - Lower(bucket) >= uint64_t{1} << WidthBits(bucket)) {
        set &= ~flags.orderly;
      }
    }
  };
  for (const SplitWindow& w : windows) {
    const v1::RowBlock& b = w.rows;
    for (uint64_t n : b.bytes()) {
      if (n % 512 != 0) set &= ~kSectors;
    }
    for (uint64_t n : b.ios()) {
      if (n == 0) set &= ~kEachHasIos;
    }
    if (!b.errors().empty()) set |= kHasErrors;
    if (!b.requeues().empty()) set |= kHasRequeues;
    look(b, BucketCursor(b.wait_buckets(), b.wait_bucket_delta(), b.wait_bucket_count()),
         b.wait_ns(), kWaitFlags);
    look(b, BucketCursor(b.io_buckets(), b.io_bucket_delta(), b.io_bucket_count()), b.io_ns(),
         kIoFlags);
  }
  return set;
}

class Encoder {
 public:
  Encoder(const v1::RowBlock& bucket, uint64_t set, std::string* out)
      : b_(bucket), set_(set), coder_(out) {}

  bool Run(std::span<const SplitWindow> windows) {
    const KeyTables tables = KeyTables::Of(b_);
    if (!tables.Fit()) return false;
    for (const SplitWindow& w : windows) {
      std::optional<std::vector<RowKey>> keys = KeysOf(w.rows, tables);
      if (!keys.has_value()) return false;
      windows_.push_back(
          {&w.rows, *std::move(keys),
           BucketCursor(w.rows.wait_buckets(), w.rows.wait_bucket_delta(),
                        w.rows.wait_bucket_count()),
           BucketCursor(w.rows.io_buckets(), w.rows.io_bucket_delta(), w.rows.io_bucket_count())});
    }
    std::optional<std::vector<RowKey>> keys = KeysOf(b_, tables);
    if (!keys.has_value()) return false;
    BucketCursor wait(b_.wait_buckets(), b_.wait_bucket_delta(), b_.wait_bucket_count());
    BucketCursor io(b_.io_buckets(), b_.io_bucket_delta(), b_.io_bucket_count());
    for (int row = 0; row < b_.op_confidence_size(); ++row) {
      wait.Next(row);
      io.Next(row);
      if (!LoadRest(b_, row, set_, wait, io, &rest_) || !PutRow((*keys)[static_cast<size_t>(row)]))
        return false;
    }
    coder_.Finish();
    return std::all_of(windows_.begin(), windows_.end(),
                       [](const EncodedWindow& w) { return w.AtEnd(); });
  }

 private:
  bool PutRow(RowKey key) {
    uint64_t mask = 0;
    uint64_t all_bytes = 0;
    for (size_t i = 0; i < windows_.size(); ++i) {
      EncodedWindow& w = windows_[i];
      if (!w.Has(key)) continue;
      mask |= uint64_t{1} << i;
      all_bytes |= Bytes(w, w.next);
    }
    if (mask == 0) return false;
    if (windows_.size() > 1) coder_.Plain(mask, static_cast<int>(windows_.size()));
    int left = std::popcount(mask);
    int unit = 0;
    if (left > 1 && rest_.bytes != 0) {
      const int zeros = std::countr_zero(rest_.bytes);
      if (all_bytes == 0 || std::countr_zero(all_bytes) > zeros) return false;
      unit = std::countr_zero(all_bytes);
      coder_.Learned(static_cast<uint64_t>(zeros - unit), &models_.unit);
      rest_.bytes >>= unit;
    } else if (left > 1 && all_bytes != 0) {
      return false;
    } else {
      unit = 0;
    }
    for (size_t i = 0; i < windows_.size(); ++i) {
      if (!(mask >> i & 1)) continue;
      EncodedWindow& w = windows_[i];
      const int row = w.next++;
      w.wait.Next(row);
      w.io.Next(row);
      Share share{w.rows->ios(row),
                  Bytes(w, row) >> unit,
                  w.rows->wait_ns(row),
                  w.rows->io_ns(row),
                  At(w.rows->errors(), row),
                  At(w.rows->requeues(), row),
                  w.wait.total(),
                  w.io.total()};
      if (!rest_.wait.Claim(w.wait.size(), w.wait.deltas(), w.wait.counts()) ||
          !rest_.io.Claim(w.io.size(), w.io.deltas(), w.io.counts())) {
        return false;
      }
      // Unless exactly the last one's share is left the row is no plain sum. No bucket of it has
      // more than there is, so equal totals are enough.
      if (left == 1) {
        return rest_.ios == share.ios && rest_.bytes == share.bytes &&
               rest_.wait_ns == share.wait_ns && rest_.io_ns == share.io_ns &&
               rest_.errors == share.errors && rest_.requeues == share.requeues &&
               rest_.wait.total == share.waits && rest_.io.total == share.io_count;
      }
      if (!CodeShare(&coder_, set_, static_cast<uint64_t>(left), &rest_, &share, &models_)) {
        return false;
      }
      Subtract(share, set_, &rest_);
      --left;
    }
    return false;
  }

  uint64_t Bytes(const EncodedWindow& w, int row) const {
    return set_ & kSectors ? w.rows->bytes(row) / 512 : w.rows->bytes(row);
  }

  const v1::RowBlock& b_;
  const uint64_t set_;
  WritingCoder coder_;
  std::vector<EncodedWindow> windows_;
  Rest rest_;
  Models models_;
};

// ---- decoding

absl::Status Damaged() { return absl::DataLossError("a stored block of windows is damaged"); }

// There is room.
void PutBuckets(const Pool& pool, Column32* sizes, Column32* deltas, Column64* counts) {
  uint32_t last = 0;
  for (size_t i = 0; i < pool.claims; ++i) {
    const uint32_t bucket = pool.bucket[pool.claim_at[i]];
    deltas->AddAlreadyReserved(bucket - last);
    counts->AddAlreadyReserved(pool.claim_count[i]);
    last = bucket;
  }
  sizes->AddAlreadyReserved(static_cast<uint32_t>(pool.claims));
}

class Decoder {
 public:
  Decoder(const v1::RowBlock& bucket, uint64_t set, std::string_view bits,
          std::vector<SplitWindow>* windows)
      : b_(bucket), set_(set), coder_(bits), windows_(*windows) {}

  absl::Status Run() {
    for (SplitWindow& w : windows_) {
      w.rows.Clear();
      *w.rows.mutable_intents() = b_.intents();
      *w.rows.mutable_actors() = b_.actors();
      *w.rows.mutable_devices() = b_.devices();
      *w.rows.mutable_files() = b_.files();
      Reserve(&w.rows);
    }
    BucketCursor wait(b_.wait_buckets(), b_.wait_bucket_delta(), b_.wait_bucket_count());
    BucketCursor io(b_.io_buckets(), b_.io_bucket_delta(), b_.io_bucket_count());
    for (int row = 0; row < b_.op_confidence_size(); ++row) {
      wait.Next(row);
      io.Next(row);
      if (!LoadRest(b_, row, set_, wait, io, &rest_) || !GetRow(row) || coder_.overrun()) {
        return Damaged();
      }
    }
    return absl::OkStatus();
  }

 private:
  bool GetRow(int row) {
    const uint64_t mask =
        windows_.size() == 1 ? 1 : coder_.Plain(0, static_cast<int>(windows_.size()));
    if (mask == 0) return false;
    int left = std::popcount(mask);
    int unit = 0;
    if (left > 1 && rest_.bytes != 0) {
      const int zeros = std::countr_zero(rest_.bytes);
      const uint64_t less = coder_.Learned(0, &models_.unit);
      if (less > static_cast<uint64_t>(zeros)) return false;
      unit = zeros - static_cast<int>(less);
      rest_.bytes >>= unit;
    }
    for (size_t i = 0; i < windows_.size(); ++i) {
      if (!(mask >> i & 1)) continue;
      Share share;
      if (left == 1) {
        share = TakeAll(set_, &rest_);
      } else if (!CodeShare(&coder_, set_, static_cast<uint64_t>(left), &rest_, &share, &models_)) {
        return false;
      }
      Add(row, share, unit, &windows_[i].rows);
      if (--left > 0) Subtract(share, set_, &rest_);
    }
    return true;
  }

  // No window has more rows, or more buckets, than the minute.
  void Reserve(v1::RowBlock* out) const {
    const int rows = b_.op_confidence_size();
    for (Column32* column :
         {out->mutable_device_ref(), out->mutable_op_confidence(), out->mutable_issuer_actor_ref(),
          out->mutable_issuer_intent_ref(), out->mutable_dirtier_actor_ref(),
          out->mutable_dirtier_intent_ref(), out->mutable_file_ref(), out->mutable_wait_buckets(),
          out->mutable_io_buckets()}) {
      column->Reserve(rows);
    }
    for (Column64* column :
         {out->mutable_ios(), out->mutable_bytes(), out->mutable_wait_ns(), out->mutable_io_ns(),
          out->mutable_errors(), out->mutable_requeues()}) {
      column->Reserve(rows);
    }
    out->mutable_wait_bucket_delta()->Reserve(b_.wait_bucket_delta_size());
    out->mutable_wait_bucket_count()->Reserve(b_.wait_bucket_delta_size());
    out->mutable_io_bucket_delta()->Reserve(b_.io_bucket_delta_size());
    out->mutable_io_bucket_count()->Reserve(b_.io_bucket_delta_size());
  }

  void Add(int row, const Share& share, int unit, v1::RowBlock* out) const {
    out->mutable_device_ref()->AddAlreadyReserved(b_.device_ref(row));
    out->mutable_op_confidence()->AddAlreadyReserved(b_.op_confidence(row));
    out->mutable_issuer_actor_ref()->AddAlreadyReserved(b_.issuer_actor_ref(row));
    out->mutable_issuer_intent_ref()->AddAlreadyReserved(b_.issuer_intent_ref(row));
    out->mutable_dirtier_actor_ref()->AddAlreadyReserved(b_.dirtier_actor_ref(row));
    out->mutable_dirtier_intent_ref()->AddAlreadyReserved(b_.dirtier_intent_ref(row));
    out->mutable_file_ref()->AddAlreadyReserved(b_.file_ref(row));
    out->mutable_ios()->AddAlreadyReserved(share.ios);
    out->mutable_bytes()->AddAlreadyReserved((share.bytes << unit) * (set_ & kSectors ? 512 : 1));
    out->mutable_wait_ns()->AddAlreadyReserved(share.wait_ns);
    out->mutable_io_ns()->AddAlreadyReserved(share.io_ns);
    if (set_ & kHasErrors) out->mutable_errors()->AddAlreadyReserved(share.errors);
    if (set_ & kHasRequeues) out->mutable_requeues()->AddAlreadyReserved(share.requeues);
    if (set_ & kHasWait) {
      PutBuckets(rest_.wait, out->mutable_wait_buckets(), out->mutable_wait_bucket_delta(),
                 out->mutable_wait_bucket_count());
    }
    if (set_ & kHasIo) {
      PutBuckets(rest_.io, out->mutable_io_buckets(), out->mutable_io_bucket_delta(),
                 out->mutable_io_bucket_count());
    }
  }

  const v1::RowBlock& b_;
  const uint64_t set_;
  ReadingCoder coder_;
  std::vector<SplitWindow>& windows_;
  Rest rest_;
  Models models_;
};

}  // namespace

bool IsWindowSplit(std::string_view value) {
  return !value.empty() && value.front() == kEncodingSplit;
}

std::optional<std::string> EncodeWindowSplit(std::string_view bucket_value, uint64_t bucket_last_ns,
                                             std::span<const SplitWindow> windows) {
  if (windows.empty() || windows.size() > kMaxSplitWindows) return std::nullopt;
  // Read back, because what matters is the order and the form in which readers will see it.
  v1::RowBlock bucket;
  uint64_t span_ns = 0;
  if (!DecodeRows(bucket_value, &bucket, &span_ns).ok()) return std::nullopt;
  std::string out(1, kEncodingSplit);
  const uint32_t checksum = Checksum(bucket_value);
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(checksum >> shift));
  PutVarint(windows.size(), &out);
  for (const SplitWindow& w : windows) {
    if (w.last_ns > bucket_last_ns) return std::nullopt;
    PutVarint(bucket_last_ns - w.last_ns, &out);
    PutVarint(w.span_ns, &out);
  }
  const uint64_t set = FlagsOf(windows);
  PutVarint(set, &out);
  if (!Encoder(bucket, set, &out).Run(windows)) return std::nullopt;
  return out;
}

absl::Status DecodeWindowSplit(std::string_view value, std::string_view bucket_value,
                               uint64_t bucket_last_ns, std::vector<SplitWindow>* windows) {
  if (!IsWindowSplit(value) || value.size() < 5) return Damaged();
  value.remove_prefix(1);
  uint32_t checksum = 0;
  for (size_t i = 0; i < 4; ++i) {
    checksum |= static_cast<uint32_t>(static_cast<uint8_t>(value[i])) << (8 * i);
  }
  value.remove_prefix(4);
  if (checksum != Checksum(bucket_value)) {
    return absl::DataLossError("a stored block of windows does not belong to its minute's block");
  }
  uint64_t count = 0;
  if (!TakeVarint(&value, &count) || count == 0 || count > kMaxSplitWindows) return Damaged();
  windows->resize(count);
  for (SplitWindow& w : *windows) {
    uint64_t before = 0;
    if (!TakeVarint(&value, &before) || before > bucket_last_ns ||
        !TakeVarint(&value, &w.span_ns)) {
      return Damaged();
    }
    w.last_ns = bucket_last_ns - before;
  }
  uint64_t set = 0;
  if (!TakeVarint(&value, &set)) return Damaged();
  v1::RowBlock bucket;
  uint64_t span_ns = 0;
  if (absl::Status status = DecodeRows(bucket_value, &bucket, &span_ns); !status.ok()) {
    return status;
  }
  return Decoder(bucket, set, value, windows).Run();
}

}  // namespace fleetblame::aggregator
