// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "absl/time/time.h"
#include "aggregator/ingest/definitions_check.h"
#include "aggregator/ingest/hello_check.h"
#include "aggregator/ingest/testing/sample_batch.h"
#include "aggregator/ingest/token_bucket.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

bool Refused(const std::function<void(v1::Hello&)>& spoil) {
  v1::Hello hello = SampleHello();
  spoil(hello);
  absl::Status status = CheckHello(hello);
  EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status));
  EXPECT_TRUE(status.ok() || !status.message().empty());
  return !status.ok();
}

TEST(HelloCheck, GoodOnesPass) {
  EXPECT_TRUE(CheckHello(SampleHello()).ok());
  EXPECT_FALSE(Refused([](v1::Hello& h) { h.set_host_id(std::string(64, 'x')); }));
  EXPECT_FALSE(Refused([](v1::Hello& h) { h.set_host_id("A.b_c-9"); }));
  EXPECT_FALSE(Refused([](v1::Hello& h) {
    h.set_first_spooled_seq(3);
    h.set_last_spooled_seq(3);
  }));
}

TEST(HelloCheck, BadOnesDoNot) {
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_protocol_version(2); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_protocol_version(0); }));
  for (const std::string& id :
       {std::string(), std::string(65, 'x'), std::string("a b"), std::string("a/b"),
        std::string("\xc3\xa4"), std::string("a\0b", 3)}) {
    EXPECT_TRUE(Refused([&](v1::Hello& h) { h.set_host_id(id); })) << id;
  }
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_spool_epoch(0); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_first_spooled_seq(4); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_last_spooled_seq(4); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_hostname(std::string(300, 'h')); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { h.set_tracer("b\npf"); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { (*h.mutable_labels())[""] = "x"; }));
  EXPECT_TRUE(Refused([](v1::Hello& h) { (*h.mutable_labels())["x"] = std::string(2000, 'v'); }));
  EXPECT_TRUE(Refused([](v1::Hello& h) {
    for (int i = 0; i < 100; ++i) (*h.mutable_labels())["l" + std::to_string(i)] = "v";
  }));
}

bool DefinitionsRefused(const std::function<void(v1::Definitions&)>& spoil) {
  v1::Definitions definitions = SampleDefinitions();
  spoil(definitions);
  return absl::IsInvalidArgument(CheckDefinitions(definitions, 100));
}

TEST(DefinitionsCheck, GoodOnesPass) {
  EXPECT_TRUE(CheckDefinitions(SampleDefinitions(), 100).ok());
  EXPECT_EQ(CountDefinitions(SampleDefinitions()), 4u);
}

TEST(DefinitionsCheck, BadOnesDoNot) {
  using D = v1::Definitions;
  EXPECT_TRUE(DefinitionsRefused([](D& d) { (*d.mutable_actors())[0].set_comm("x"); }));
  EXPECT_TRUE(DefinitionsRefused([](D& d) { (*d.mutable_intents())[1].set_intent_id("short"); }));
  EXPECT_TRUE(DefinitionsRefused([](D& d) { (*d.mutable_intents())[1].add_frames(""); }));
  EXPECT_TRUE(DefinitionsRefused(
      [](D& d) { (*d.mutable_intents())[1].add_frames(std::string(5000, 'f')); }));
  EXPECT_TRUE(DefinitionsRefused([](D& d) {
    for (int i = 0; i < 300; ++i) (*d.mutable_intents())[1].add_frames("f");
  }));
  EXPECT_TRUE(DefinitionsRefused([](D& d) {
    for (int i = 0; i < 30; ++i) (*d.mutable_intents())[1].add_variants();
  }));
  EXPECT_TRUE(DefinitionsRefused([](D& d) {
    (*d.mutable_intents())[1].add_variants()->add_frames()->set_symbol(std::string(5000, 's'));
  }));
  EXPECT_TRUE(DefinitionsRefused([](D& d) { (*d.mutable_devices())[1].clear_name(); }));
  EXPECT_TRUE(
      DefinitionsRefused([](D& d) { (*d.mutable_files())[1].set_path(std::string(5000, 'p')); }));
  EXPECT_TRUE(DefinitionsRefused(
      [](D& d) { (*d.mutable_actors())[1].set_cgroup(std::string(5000, 'c')); }));
  EXPECT_TRUE(absl::IsResourceExhausted(CheckDefinitions(SampleDefinitions(), 3)));
}

TEST(TokenBucket, BurstThenRate) {
  TokenBucket bucket(100, 10);
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(bucket.Take(100, now), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(0, now), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(20, now), absl::Seconds(2));
  now += absl::Seconds(2);
  EXPECT_EQ(bucket.Take(20, now), absl::ZeroDuration());
  // A clock that steps back neither gives nor takes.
  EXPECT_GT(bucket.Take(1, now - absl::Hours(1)), absl::ZeroDuration());
}

TEST(TokenBucket, MoreThanTheBurstPassesWhenFull) {
  TokenBucket bucket(100, 10);
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(bucket.Take(150, now), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(10, now), absl::Seconds(6));
}

}  // namespace
}  // namespace fleetblame::aggregator
