// SPDX-License-Identifier: Apache-2.0
//
// Numbers as bits: fixed widths, and Rice codes whose parameter follows the mean of what came
// before. Small numbers that scatter geometrically, as most columns do once they are predicted a
// little, come within a few percent of their entropy that way, at two nanoseconds each and without
// a table in front of every block.
//
// Threading: plain values. A reader never leaves its buffer, whatever the bits say: beyond the end
// it reads zeros and says so.
#ifndef AGGREGATOR_STORE_BIT_STREAM_H_
#define AGGREGATOR_STORE_BIT_STREAM_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace fleetblame::aggregator {

// Reading a number takes so little that calling a function for it would double it.
#define FLEETBLAME_INLINE [[gnu::always_inline]] inline

// Unary parts longer than this are replaced by this many and the number in plain.
inline constexpr int kRiceEscape = 24;

inline uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

class BitWriter {
 public:
  // Appends to `*out`, which is complete only after Finish.
  explicit BitWriter(std::string* out) : out_(out), at_(out->size()) { Grow(); }

  void Put(uint64_t value, int bits) {
    if (bits > 32) {
      PutShort(value & 0xffffffff, 32);
      PutShort(value >> 32, bits - 32);
    } else {
      PutShort(value, bits);
    }
  }
  void PutRice(uint64_t value, int k) {
    const uint64_t quotient = value >> k;
    const uint64_t rest = value & ((uint64_t{1} << k) - 1);
    if (quotient + static_cast<uint64_t>(k) < 32 && quotient < kRiceEscape) {
      const int unary = static_cast<int>(quotient) + 1;
      PutShort(uint64_t{1} << quotient | rest << unary, unary + k);
      return;
    }
    if (quotient < kRiceEscape) {
      PutShort(uint64_t{1} << quotient, static_cast<int>(quotient) + 1);
      Put(rest, k);
      return;
    }
    PutShort(uint64_t{1} << kRiceEscape, kRiceEscape + 1);
    const int width = std::bit_width(value);
    PutShort(static_cast<uint64_t>(width), 7);
    Put(value, width);
  }
  // Fills up the last byte. Nothing may follow.
  void Finish() {
    std::memcpy(out_->data() + at_, &bits_, 8);
    at_ += static_cast<size_t>(used_ + 7) / 8;
    out_->resize(at_);
  }

 private:
  static constexpr size_t kStepBytes = 4096;

  // `value` has no bits above `bits`, which is at most 32.
  void PutShort(uint64_t value, int bits) {
    bits_ |= value << used_;
    used_ += bits;
    if (used_ < 32) return;
    std::memcpy(out_->data() + at_, &bits_, 4);
    at_ += 4;
    bits_ >>= 32;
    used_ -= 32;
    if (at_ + 8 > out_->size()) Grow();
  }
  void Grow() { out_->resize(at_ + at_ / 2 + kStepBytes); }

  std::string* const out_;
  size_t at_;  // where the next bytes go; eight more are there
  uint64_t bits_ = 0;
  int used_ = 0;  // below 32 between calls
};
static_assert(std::endian::native == std::endian::little, "bits are stored low byte first");

class BitReader {
 public:
  explicit BitReader(std::string_view in)
      : at_(reinterpret_cast<const uint8_t*>(in.data())), end_(at_ + in.size()) {}

  FLEETBLAME_INLINE uint64_t Get(int bits) {
    if (bits > 32) [[unlikely]] {
      uint64_t low = GetShort(32);
      return low | GetShort(bits - 32) << 32;
    }
    return GetShort(bits);
  }
  FLEETBLAME_INLINE uint64_t GetRice(int k) {
    Fill();
    return GetFilledRice(k);
  }
  // A second number right behind another one mostly finds its bits there already.
  FLEETBLAME_INLINE uint64_t GetSecondRice(int k) {
    if (have_ < kRiceEscape + 1 + k) [[unlikely]]
      Fill();
    return GetFilledRice(k);
  }
  // Whether more was read than there was.
  bool overrun() const { return missing_ > 0 && have_ < missing_; }

 private:
  // What is rare works on a copy: a reader whose address nobody has stays in registers.

  // Bits that are there after Fill.
  static constexpr int kMostFilled = 56;

  FLEETBLAME_INLINE uint64_t GetFilledRice(int k) {
    const int quotient = std::countr_zero(bits_ | uint64_t{1} << kRiceEscape);
    if (quotient == kRiceEscape || k > kMostFilled - kRiceEscape) [[unlikely]] {
      BitReader copy = *this;
      const uint64_t value = copy.GetLongRice(quotient, k);
      *this = copy;
      return value;
    }
    const uint64_t rest = bits_ >> (quotient + 1) & ((uint64_t{1} << k) - 1);
    Drop(quotient + 1 + k);
    return static_cast<uint64_t>(quotient) << k | rest;
  }
  [[gnu::noinline, gnu::cold]] uint64_t GetLongRice(int quotient, int k) {
    Drop(quotient + 1);
    if (quotient < kRiceEscape) return static_cast<uint64_t>(quotient) << k | Get(k);
    const int width = static_cast<int>(GetShort(7));
    return Get(std::min(width, 64));
  }
  FLEETBLAME_INLINE uint64_t GetShort(int bits) {
    Fill();
    const uint64_t value = bits_ & ((uint64_t{1} << bits) - 1);
    Drop(bits);
    return value;
  }
  FLEETBLAME_INLINE void Drop(int bits) {
    bits_ >>= bits;
    have_ -= bits;
  }
  FLEETBLAME_INLINE void Fill() {
    if (end_ - at_ < 8) [[unlikely]] {
      BitReader copy = *this;
      copy.FillAtEnd();
      *this = copy;
      return;
    }
    uint64_t word;
    std::memcpy(&word, at_, 8);
    // What is above `have_` bits is put there once more by the next Fill, and is the same then.
    bits_ |= word << have_;
    at_ += (63 - have_) >> 3;
    have_ |= kMostFilled;
  }
  [[gnu::noinline]] void FillAtEnd() {
    while (have_ <= kMostFilled) {
      uint64_t byte = 0;
      if (at_ < end_) {
        byte = *at_++;
      } else {
        missing_ += 8;
      }
      bits_ |= byte << have_;
      have_ += 8;
    }
  }

  const uint8_t* at_;
  const uint8_t* end_;
  uint64_t bits_ = 0;
  int have_ = 0;
  int64_t missing_ = 0;  // bits made up beyond the end
};

// A Rice parameter that follows the numbers. Writer and reader go through the same states.
class RiceModel {
 public:
  explicit RiceModel(uint32_t mean = 2) : sum_(uint64_t{mean} * kMemory) {}

  void Put(uint64_t value, BitWriter* out) {
    out->PutRice(value, k());
    Learn(value);
  }
  FLEETBLAME_INLINE uint64_t Get(BitReader* in) {
    const uint64_t value = in->GetRice(k());
    Learn(value);
    return value;
  }
  FLEETBLAME_INLINE uint64_t GetSecond(BitReader* in) {
    const uint64_t value = in->GetSecondRice(k());
    Learn(value);
    return value;
  }

 private:
  static constexpr uint64_t kMemory = 16;
  static constexpr uint64_t kLargest = uint64_t{1} << 31;

  // The best parameter of a geometric distribution: log2(mean * ln 2), rounded up.
  FLEETBLAME_INLINE int k() const { return std::bit_width(sum_ * 11 / (16 * kMemory)); }
  FLEETBLAME_INLINE void Learn(uint64_t value) {
    sum_ += std::min(value, kLargest) - sum_ / kMemory;
  }

  uint64_t sum_;  // mean of the last values times kMemory
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_BIT_STREAM_H_
