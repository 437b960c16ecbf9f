// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/skipped_ios.h"

#include <gtest/gtest.h>

#include <random>

namespace fleetblame::agent {
namespace {

Sample Make(ActorId actor, uint64_t ios, uint64_t bytes, uint64_t stands_for) {
  Sample sample{.stands_for = stands_for};
  sample.row.key.issuer_actor = actor;
  sample.row.key.operation = Operation::kRead;
  sample.row.key.confidence = Confidence::kIssuer;
  sample.row.values.ios = ios;
  sample.row.values.bytes = bytes;
  sample.row.values.wait_ns = 1000 * ios;
  sample.row.values.io_ns = 5000 * ios;
  if (ios != 0) {
    sample.row.values.wait.Add(0, ios);
    sample.row.values.io.Add(20, ios / 2);
    sample.row.values.io.Add(30, ios - ios / 2);
  }
  return sample;
}

std::vector<Row> RowsOf(const std::vector<Sample>& charged) {
  std::vector<Row> rows;
  for (const Sample& part : charged) rows.push_back(part.row);
  return rows;
}

TEST(ChargeSkipped, GoesByWhatTheSamplesStandFor) {
  const auto rows = RowsOf(ChargeSkipped(
      {Make(1, 100, 100 * 4096, 8), Make(2, 300, 300 * 4096, 8)}, {2800, 2800 * 4096}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key.issuer_actor, 1u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kEstimated);
  EXPECT_EQ(rows[0].values.ios, 700u);
  EXPECT_EQ(rows[0].values.bytes, 700u * 4096);
  EXPECT_EQ(rows[0].values.wait_ns, 700'000u);
  EXPECT_EQ(rows[0].values.io_ns, 3'500'000u);
  EXPECT_EQ(rows[0].values.io.entries().front(), SparseHistogram::Entry(20, 350));
  EXPECT_EQ(rows[1].values.ios, 2100u);
}

// A CPU with few IOs looks at each one: these stand for themselves and get nothing of the rest.
TEST(ChargeSkipped, NothingForThoseWhoWereAllLookedAt) {
  const auto charged = ChargeSkipped({Make(1, 1000, 1000, 1), Make(2, 10, 10, 4)}, {30, 30});
  ASSERT_EQ(charged.size(), 1u);
  EXPECT_EQ(charged[0].stands_for, 4u);
  const auto rows = RowsOf(charged);
  EXPECT_EQ(rows[0].key.issuer_actor, 2u);
  EXPECT_EQ(rows[0].values.ios, 30u);
}

TEST(ChargeSkipped, NobodyToCharge) {
  EXPECT_TRUE(ChargeSkipped({}, {30, 30}).empty());
  EXPECT_TRUE(ChargeSkipped({Make(1, 1000, 1000, 1)}, {30, 30}).empty());
  EXPECT_TRUE(ChargeSkipped({Make(1, 0, 0, 8)}, {30, 30}).empty());
}

TEST(ChargeSkipped, PiecesWithoutAnIoOfTheirOwn) {
  const auto rows =
      RowsOf(ChargeSkipped({Make(1, 0, 4096, 8), Make(2, 0, 4096, 8)}, {14, 14 * 4096}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].values.ios + rows[1].values.ios, 14u);
}

// Whatever the samples and the counts: bytes and IOs are dealt out to the last one, and each
// histogram counts the IOs of its row.
TEST(ChargeSkipped, AddsUp) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Sample> samples;
    bool any = false;
    for (int i = random() % 9; i >= 0; --i) {
      const uint64_t ios = random() % 5 == 0 ? 0 : random() % (uint64_t{1} << random() % 33);
      const uint64_t weight = uint64_t{1} << random() % 11;
      const uint64_t bytes = ios == 0 ? 0 : ios * (1 + random() % 65536);
      any |= bytes != 0 && weight > 1;
      samples.push_back(Make(i, ios, bytes, weight));
    }
    const SkippedIos skipped{random() % (uint64_t{1} << random() % 40),
                             random() % (uint64_t{1} << random() % 52)};
    const auto rows = RowsOf(ChargeSkipped(samples, skipped));
    if (!any) {
      EXPECT_TRUE(rows.empty());
      continue;
    }
    SkippedIos sum;
    for (const Row& row : rows) {
      sum.ios += row.values.ios;
      sum.bytes += row.values.bytes;
      EXPECT_EQ(row.values.wait.total(), row.values.ios);
      EXPECT_EQ(row.values.io.total(), row.values.ios);
    }
    EXPECT_EQ(sum.ios, skipped.ios);
    EXPECT_EQ(sum.bytes, skipped.bytes);
  }
}

}  // namespace
}  // namespace fleetblame::agent
