// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/sampled_ios.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

constexpr DeviceNumber kDisk{8, 0};
constexpr uint64_t kKeptNs = 60;

class SampledIosTest : public testing::Test {
 protected:
  static Row Sampled(ActorId actor, uint64_t ios, uint64_t bytes) {
    Row row;
    row.key.device = kDisk;
    row.key.operation = Operation::kRead;
    row.key.confidence = Confidence::kIssuer;
    row.key.issuer_actor = actor;
    row.values.ios = ios;
    row.values.bytes = bytes;
    return row;
  }
  // What a window charges for `skipped` reads since the start.
  std::vector<Row> Charge(const SkippedIos& skipped, uint64_t now_ns) {
    std::vector<Row> rows;
    losses_.clear();
    ios_.Charge(kDisk, Operation::kRead, /*cell=*/4, skipped, now_ns, &rows, &losses_);
    ios_.EndWindow(now_ns);
    return rows;
  }

  SampledIos ios_{kKeptNs};
  std::map<std::string, uint64_t> losses_;
};

TEST_F(SampledIosTest, OnlyWhatWasSkippedSinceTheLastWindowIsCharged) {
  ios_.Add(Sampled(1, 2, 8192), 8);
  std::vector<Row> rows = Charge({.ios = 14, .bytes = 57344}, 100);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kEstimated);
  EXPECT_EQ(rows[0].key.issuer_actor, 1u);
  EXPECT_EQ(rows[0].values.ios, 14u);
  EXPECT_EQ(rows[0].values.bytes, 57344u);
  EXPECT_EQ(losses_["ios_estimated"], 14u);
  EXPECT_GT(losses_["ios_estimated_variance"], 0u);
  EXPECT_TRUE(Charge({.ios = 14, .bytes = 57344}, 110).empty());
  EXPECT_TRUE(losses_.empty());
}

TEST_F(SampledIosTest, WithoutASampleOfItsOwnAWindowUsesThoseBeforeAndForgetsThem) {
  ios_.Add(Sampled(1, 1, 4096), 8);
  Charge({.ios = 7, .bytes = 7 * 4096}, 100);
  std::vector<Row> rows = Charge({.ios = 10, .bytes = 10 * 4096}, 100 + kKeptNs);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key.issuer_actor, 1u);
  EXPECT_EQ(rows[0].values.ios, 3u);
  Charge({.ios = 10, .bytes = 10 * 4096}, 101 + kKeptNs);
  rows = Charge({.ios = 12, .bytes = 12 * 4096}, 102 + kKeptNs);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key.confidence, Confidence::kLost);
  EXPECT_EQ(rows[0].values.ios, 2u);
  EXPECT_EQ(rows[0].values.bytes, 8192u);
}

TEST_F(SampledIosTest, NewSamplesTakeThePlaceOfThoseBefore) {
  ios_.Add(Sampled(1, 1, 4096), 8);
  Charge({.ios = 7, .bytes = 7 * 4096}, 100);
  ios_.Add(Sampled(2, 1, 4096), 8);
  std::vector<Row> rows = Charge({.ios = 14, .bytes = 14 * 4096}, 110);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key.issuer_actor, 2u);
}

// The rows of a window add up and have each key once, also when some were lost already.
TEST_F(SampledIosTest, WhatNobodyCanBeChargedForJoinsTheRowOfLostBytes) {
  std::vector<Row> rows(1);
  rows[0].key = {.device = kDisk, .operation = Operation::kRead, .confidence = Confidence::kLost};
  rows[0].values.bytes = 512;
  ios_.Charge(kDisk, Operation::kRead, 4, {.ios = 1, .bytes = 4096}, 100, &rows, &losses_);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].values.bytes, 4608u);
}

}  // namespace
}  // namespace fleetblame::agent
