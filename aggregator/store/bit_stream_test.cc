// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/bit_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace fleetblame::aggregator {
namespace {

TEST(BitStream, FixedWidthsComeBack) {
  std::mt19937_64 random(1);
  std::vector<std::pair<uint64_t, int>> values;
  std::string bytes;
  BitWriter out(&bytes);
  for (int i = 0; i < 5000; ++i) {
    int width = static_cast<int>(random() % 65);
    uint64_t value = width == 0 ? 0 : random() >> (64 - width);
    values.emplace_back(value, width);
    out.Put(value, width);
  }
  out.Finish();
  BitReader in(bytes);
  for (auto [value, width] : values) ASSERT_EQ(in.Get(width), value) << width;
  EXPECT_FALSE(in.overrun());
  in.Get(8);
  EXPECT_TRUE(in.overrun());
}

TEST(BitStream, RiceCodesComeBackWhateverTheParameter) {
  std::mt19937_64 random(2);
  std::vector<std::pair<uint64_t, int>> values;
  std::string bytes;
  BitWriter out(&bytes);
  for (int i = 0; i < 20000; ++i) {
    int k = static_cast<int>(random() % 63);
    uint64_t value = random() >> (random() % 64);
    values.emplace_back(value, k);
    out.PutRice(value, k);
  }
  out.PutRice(UINT64_MAX, 0);
  out.Finish();
  BitReader in(bytes);
  for (auto [value, k] : values) ASSERT_EQ(in.GetRice(k), value) << k;
  EXPECT_EQ(in.GetRice(0), UINT64_MAX);
  EXPECT_FALSE(in.overrun());
}

TEST(BitStream, ModelFollowsItsNumbers) {
  std::mt19937_64 random(3);
  for (double mean : {0.1, 1.0, 30.0, 1e6}) {
    std::geometric_distribution<uint64_t> draw(1 / (mean + 1));
    std::vector<uint64_t> values(4000);
    for (uint64_t& v : values) v = draw(random);
    std::string bytes;
    BitWriter out(&bytes);
    RiceModel writing;
    for (uint64_t v : values) writing.Put(v, &out);
    out.Finish();
    // Entropy of a geometric distribution, and what a prefix code of whole bits may add.
    double p = 1 / (mean + 1);
    double entropy = (-(1 - p) * std::log2(1 - p) - p * std::log2(p)) / p;
    EXPECT_LE(static_cast<double>(bytes.size()) * 8 / 4000, std::max(1.2, entropy * 1.1 + 0.1));
    BitReader in(bytes);
    RiceModel reading;
    for (uint64_t v : values) ASSERT_EQ(reading.Get(&in), v);
  }
}

TEST(BitStream, ReadingGarbageEndsInOverrun) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 1000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    BitReader in(bytes);
    RiceModel model;
    int read = 0;
    while (!in.overrun()) {
      model.Get(&in);
      ASSERT_LT(++read, 1000);
    }
  }
}

TEST(BitStream, ZigZagKeepsSigns) {
  for (int64_t v : {int64_t{0}, int64_t{-1}, int64_t{1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(UnZigZag(ZigZag(v)), v);
  }
  EXPECT_EQ(ZigZag(-1), 1u);
}

}  // namespace
}  // namespace fleetblame::aggregator
