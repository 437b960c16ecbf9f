// SPDX-License-Identifier: Apache-2.0
//
// Series against answers worked out by hand, and the choice of steps.
#include "aggregator/query/series_steps.h"
#include "aggregator/query/testing/query_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Stub = v1::Query::Stub;

TEST(SeriesStepsTest, ChosenStepsAreFewAndPleasant) {
  auto step = [](uint64_t length) {
    auto s = MakeSteps({kDawn + 7, kDawn + 7 + length}, 0, 10 * kSecond);
    EXPECT_TRUE(s.ok());
    EXPECT_LE(s->count, kDefaultPoints);
    EXPECT_LE(s->first_unix_ns, kDawn + 7);
    EXPECT_GE(s->end_unix_ns(), kDawn + 7 + length);
    EXPECT_EQ(s->first_unix_ns % s->step_ns, 0u);
    return s->step_ns;
  };
  EXPECT_EQ(step(1), 10 * kSecond);
  EXPECT_EQ(step(15 * kMinute), 10 * kSecond);
  EXPECT_EQ(step(kHour), kMinute);
  EXPECT_EQ(step(3 * kHour), 2 * kMinute);
  EXPECT_EQ(step(24 * kHour), 20 * kMinute);
  EXPECT_EQ(step(30 * kDayNs), 12 * kHour);
  EXPECT_EQ(step(1000 * kDayNs), 9 * kDayNs);
}

TEST(SeriesStepsTest, WantedStepsAreRoundedUpToWhatIsStored) {
  auto steps = [](uint64_t wanted) {
    auto s = MakeSteps({kDawn, kDawn + kHour}, wanted, 10 * kSecond);
    EXPECT_TRUE(s.ok());
    return *s;
  };
  EXPECT_EQ(steps(1).step_ns, 10 * kSecond);
  EXPECT_EQ(steps(15 * kSecond).step_ns, 20 * kSecond);
  EXPECT_EQ(steps(15 * kSecond).coarsest, Level::kRaw);
  EXPECT_EQ(steps(kMinute).step_ns, kMinute);
  EXPECT_EQ(steps(kMinute).coarsest, Level::k1m);
  EXPECT_EQ(steps(61 * kSecond).step_ns, 2 * kMinute);
  EXPECT_EQ(steps(15 * kMinute).step_ns, 20 * kMinute);
  EXPECT_EQ(steps(15 * kMinute).coarsest, Level::k10m);
  EXPECT_EQ(steps(90 * kMinute).step_ns, 2 * kHour);
  EXPECT_EQ(steps(25 * kHour).coarsest, Level::k1d);
  EXPECT_EQ(steps(25 * kHour).step_ns, 2 * kDayNs);
}

TEST(SeriesStepsTest, Bounds) {
  auto many = MakeSteps({kDawn, kDawn + 30 * kDayNs}, 10 * kSecond, 10 * kSecond);
  EXPECT_FALSE(many.ok());
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("take a longer step"));
  EXPECT_FALSE(MakeSteps({kDawn, kDawn + 1}, UINT64_MAX, 10 * kSecond).ok());
  // The whole of time, in steps of its own choice.
  EXPECT_TRUE(MakeSteps({0, (uint64_t{1} << 63) - 1}, 0, 10 * kSecond).ok());
}

class SeriesTest : public ::testing::TestWithParam<bool> {
 protected:
  SeriesTest() {
    f_.store().EnableRollups(GetParam());
    a_ = f_.Host("a");
    b_ = f_.Host("b");
    one_ = f_.Intent("111111", {"one"});
    two_ = f_.Intent("222222", {"two"});
    // Ten minutes: `one` writes 100 bytes each 10 s on a; `two` 1000 bytes in the third minute on
    // b.
    for (uint64_t i = 0; i < 60; ++i) {
      const uint64_t start = kDawn + i * 10 * kSecond;
      f_.store().AddRows(a_, start, start + 10 * kSecond, {Write(one_, 0, 0, 1, 100)});
      if (i / 6 == 2) {
        f_.store().AddRows(b_, start, start + 10 * kSecond, {Write(two_, 0, 0, 2, 1000)});
      }
    }
  }
  v1::SeriesResponse Ask(v1::SeriesRequest request) {
    if (!request.has_range()) *request.mutable_range() = Range(kDawn, kDawn + 10 * kMinute);
    v1::SeriesResponse r;
    grpc::Status s = f_.Call(&Stub::Series, request, &r);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return r;
  }
  static std::vector<uint64_t> Bytes(const v1::SeriesResponse::Line& line) {
    std::vector<uint64_t> out;
    for (const v1::Metrics& m : line.points()) out.push_back(m.bytes());
    return out;
  }
  QueryFixture f_;
  HostNumber a_, b_;
  IntentNumber one_, two_;
};

TEST_P(SeriesTest, OneLineForEverything) {
  v1::SeriesRequest request;
  request.set_step_ns(kMinute);
  v1::SeriesResponse r = Ask(request);
  EXPECT_EQ(r.step_ns(), kMinute);
  EXPECT_EQ(r.first_unix_ns(), kDawn);
  ASSERT_EQ(r.lines_size(), 1);
  EXPECT_THAT(Bytes(r.lines(0)), ElementsAre(600, 600, 6600, 600, 600, 600, 600, 600, 600, 600));
  EXPECT_EQ(r.lines(0).points(2).ios(), 18u);
  EXPECT_EQ(r.lines(0).points(2).hosts(), 2u);
  EXPECT_EQ(r.lines(0).points(3).hosts(), 1u);
  EXPECT_EQ(r.lines(0).total().bytes(), 12000u);
  EXPECT_EQ(r.lines(0).total().hosts(), 2u);
  EXPECT_EQ(r.incomplete_steps_size(), 0);
  EXPECT_EQ(r.summary().resolution_ns(), GetParam() ? kMinute : 10 * kSecond);
}

TEST_P(SeriesTest, LinesLargestFirst) {
  v1::SeriesRequest request;
  request.set_step_ns(5 * kMinute);
  request.add_by(v1::DIMENSION_INTENT);
  v1::SeriesResponse r = Ask(request);
  ASSERT_EQ(r.lines_size(), 2);
  EXPECT_EQ(r.lines(0).key(0).short_id(), "111111");
  EXPECT_THAT(Bytes(r.lines(0)), ElementsAre(3000, 3000));
  EXPECT_EQ(r.lines(1).key(0).short_id(), "222222");
  EXPECT_THAT(Bytes(r.lines(1)), ElementsAre(6000, 0));
  request.set_limit(1);
  request.set_order_by(v1::ORDER_BY_IOS);
  r = Ask(request);
  ASSERT_EQ(r.lines_size(), 1);
  EXPECT_EQ(r.lines(0).key(0).short_id(), "111111");
  EXPECT_EQ(r.omitted_groups(), 1u);
  // The summary counts what was omitted as well.
  EXPECT_EQ(r.summary().written_bytes(), 12000u);
}

TEST_P(SeriesTest, RangeIsRoundedToSteps) {
  v1::SeriesRequest request;
  *request.mutable_range() = Range(kDawn + 90 * kSecond, kDawn + 150 * kSecond);
  request.set_step_ns(kMinute);
  v1::SeriesResponse r = Ask(request);
  EXPECT_EQ(r.first_unix_ns(), kDawn + kMinute);
  EXPECT_THAT(Bytes(r.lines(0)), ElementsAre(600, 6600));
  EXPECT_EQ(r.summary().start_unix_ns(), kDawn + kMinute);
  EXPECT_EQ(r.summary().end_unix_ns(), kDawn + 3 * kMinute);
}

TEST_P(SeriesTest, IncompleteSteps) {
  v1::Gap gap;
  gap.set_start_unix_ns(kDawn + 3 * kMinute + kSecond);
  gap.set_end_unix_ns(kDawn + 5 * kMinute);
  ASSERT_TRUE(f_.store().AddGap(b_, gap).ok());
  f_.now = kDawn + 11 * kMinute + 30 * kSecond;
  v1::SeriesRequest request;
  request.set_step_ns(kMinute);
  *request.mutable_range() = Range(kDawn - kMinute, f_.now);
  v1::SeriesResponse r = Ask(request);
  // No data before dawn and after ten minutes; gaps in minutes 3 and 4; the last is not over.
  EXPECT_THAT(r.incomplete_steps(), ElementsAre(0, 4, 5, 11, 12));
  request.set_selector("host=\"a\"");
  EXPECT_THAT(Ask(request).incomplete_steps(), ElementsAre(0, 11, 12));
  // Steps without the intent are not steps without data.
  request.clear_selector();
  request.mutable_filter()->add_intents("222222");
  r = Ask(request);
  EXPECT_THAT(r.incomplete_steps(), ElementsAre(0, 4, 5, 11, 12));
  EXPECT_EQ(r.lines(0).total().bytes(), 6000u);
}

TEST_P(SeriesTest, SeriesOfAnIntentOverManyHosts) {
  for (int i = 0; i < 20; ++i) f_.Host("more" + std::to_string(i));
  v1::SeriesRequest request;
  request.set_step_ns(kMinute);
  request.mutable_filter()->add_intents("222222");
  v1::SeriesResponse r = Ask(request);
  EXPECT_EQ(r.incomplete_steps_size(), 0);
  ASSERT_EQ(r.lines_size(), 1);
  EXPECT_THAT(Bytes(r.lines(0)), ElementsAre(0, 0, 6000, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(r.lines(0).points(2).hosts(), 1u);
  request.set_selector("host!=\"b\"");
  r = Ask(request);
  EXPECT_EQ(r.lines_size(), 0);
  EXPECT_EQ(r.incomplete_steps_size(), 0);
}

TEST_P(SeriesTest, WindowsLongerThanStepsAreSaid) {
  f_.store().AddRows(b_, kDawn, kDawn + 50 * kSecond, {Write(one_, 0, 0, 1, 7)});
  v1::SeriesRequest request;
  request.set_step_ns(10 * kSecond);
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::SeriesResponse r = Ask(request);
  EXPECT_THAT(Bytes(r.lines(0)), ElementsAre(100, 100, 100, 100, 107, 100));
  EXPECT_THAT(r.summary().warnings(), Contains(HasSubstr("longer than a step")));
}

INSTANTIATE_TEST_SUITE_P(RawAndRollups, SeriesTest, ::testing::Bool());

TEST(SeriesOldDataTest, CoarserDataIsPointedOut) {
  QueryFixture f;
  f.store().EnableRollups(true);
  HostNumber host = f.Host("a");
  for (uint64_t i = 0; i < 12; ++i) {
    f.store().AddRows(host, kDawn + i * 10 * kSecond, kDawn + (i + 1) * 10 * kSecond,
                      {Write(0, 0, 0, 1, 1)});
  }
  f.store().ForgetRawBefore(kDawn + kMinute);
  v1::SeriesRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + 2 * kMinute);
  request.set_step_ns(10 * kSecond);
  v1::SeriesResponse r;
  ASSERT_TRUE(f.Call(&Stub::Series, request, &r).ok());
  EXPECT_EQ(r.lines(0).total().bytes(), 6u);
  EXPECT_THAT(r.incomplete_steps(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(r.summary().warnings(), Contains(HasSubstr("kept only in steps of 60 s")));
  request.set_step_ns(kMinute);
  r.Clear();
  ASSERT_TRUE(f.Call(&Stub::Series, request, &r).ok());
  EXPECT_EQ(r.lines(0).total().bytes(), 12u);
  EXPECT_THAT(r.summary().warnings(), Not(Contains(HasSubstr("kept only"))));
}

}  // namespace
}  // namespace fleetblame::aggregator
