// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/sampled_ios.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

constexpr DeviceNumber kDisk{8, 0};
constexpr uint64_t kKeptNs = 60;

class SampledIosTest : public testing::Test {
 protected:
  void Add(ActorId actor, uint64_t ios, uint64_t bytes, SkippedKind kind = SkippedKind::kRead) {
    Row row;
    row.key.device = kDisk;
    row.key.operation = OperationOf(kind);
    row.key.confidence = Confidence::kIssuer;
    row.key.issuer_actor = actor;
    row.values.ios = ios;
    row.values.bytes = bytes;
    ios_.Add(kind, {.row = row, .stands_for = 8, .groups_per_sample = 4});
  }
  // What a window charges for what was skipped since the start; lost rows stand for nothing.
  std::vector<Sample> Charge(const SkippedIos& skipped, uint64_t now_ns,
                             SkippedKind kind = SkippedKind::kRead) {
    std::vector<Row> lost;
    std::vector<Sample> charged = ios_.Charge(kDisk, kind, skipped, now_ns, &lost);
    ios_.EndWindow(now_ns);
    for (const Row& row : lost) charged.push_back({.row = row});
    return charged;
  }

  SampledIos ios_{kKeptNs};
};

TEST_F(SampledIosTest, OnlyWhatWasSkippedSinceTheLastWindowIsCharged) {
  Add(1, 2, 8192);
  std::vector<Sample> charged = Charge({.ios = 14, .bytes = 57344}, 100);
  ASSERT_EQ(charged.size(), 1u);
  EXPECT_EQ(charged[0].row.key.confidence, Confidence::kEstimated);
  EXPECT_EQ(charged[0].row.key.issuer_actor, 1u);
  EXPECT_EQ(charged[0].row.values.ios, 14u);
  EXPECT_EQ(charged[0].row.values.bytes, 57344u);
  EXPECT_EQ(charged[0].stands_for, 8u);
  EXPECT_EQ(charged[0].groups_per_sample, 4u);
  EXPECT_TRUE(Charge({.ios = 14, .bytes = 57344}, 110).empty());
}

TEST_F(SampledIosTest, WithoutASampleOfItsOwnAWindowUsesThoseBeforeAndForgetsThem) {
  Add(1, 1, 4096);
  Charge({.ios = 7, .bytes = 7 * 4096}, 100);
  std::vector<Sample> charged = Charge({.ios = 10, .bytes = 10 * 4096}, 100 + kKeptNs);
  ASSERT_EQ(charged.size(), 1u);
  EXPECT_EQ(charged[0].row.key.issuer_actor, 1u);
  EXPECT_EQ(charged[0].row.values.ios, 3u);
  Charge({.ios = 10, .bytes = 10 * 4096}, 101 + kKeptNs);
  charged = Charge({.ios = 12, .bytes = 12 * 4096}, 102 + kKeptNs);
  ASSERT_EQ(charged.size(), 1u);
  EXPECT_EQ(charged[0].row.key.confidence, Confidence::kLost);
  EXPECT_EQ(charged[0].row.values.ios, 2u);
  EXPECT_EQ(charged[0].row.values.bytes, 8192u);
}

TEST_F(SampledIosTest, NewSamplesTakeThePlaceOfThoseBefore) {
  Add(1, 1, 4096);
  Charge({.ios = 7, .bytes = 7 * 4096}, 100);
  Add(2, 1, 4096);
  std::vector<Sample> charged = Charge({.ios = 14, .bytes = 14 * 4096}, 110);
  ASSERT_EQ(charged.size(), 1u);
  EXPECT_EQ(charged[0].row.key.issuer_actor, 2u);
}

// Direct writes and those of pages are both writes, of others.
TEST_F(SampledIosTest, KindsSayNothingOfEachOther) {
  Add(1, 1, 4096, SkippedKind::kDirectWrite);
  Add(2, 1, 4096, SkippedKind::kPageWrite);
  std::vector<Sample> charged =
      Charge({.ios = 7, .bytes = 7 * 4096}, 100, SkippedKind::kPageWrite);
  ASSERT_EQ(charged.size(), 1u);
  EXPECT_EQ(charged[0].row.key.issuer_actor, 2u);
  EXPECT_EQ(charged[0].row.key.operation, Operation::kWrite);
}

// The rows of a window add up and have each key once, also when some were lost already.
TEST_F(SampledIosTest, WhatNobodyCanBeChargedForJoinsTheRowOfLostBytes) {
  std::vector<Row> rows(1);
  rows[0].key = {.device = kDisk, .operation = Operation::kRead, .confidence = Confidence::kLost};
  rows[0].values.bytes = 512;
  EXPECT_TRUE(
      ios_.Charge(kDisk, SkippedKind::kRead, {.ios = 1, .bytes = 4096}, 100, &rows).empty());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].values.bytes, 4608u);
}

}  // namespace
}  // namespace fleetblame::agent
