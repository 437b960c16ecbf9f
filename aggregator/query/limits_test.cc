// SPDX-License-Identifier: Apache-2.0
//
// Questions that must be refused, and clients that go away: each ends with the right code and a
// sentence that says what to do, and leaves the service as good as before.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "aggregator/query/testing/query_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using Stub = v1::Query::Stub;

void Fill(QueryFixture* f, int hosts, int windows, int rows) {
  for (int h = 0; h < hosts; ++h) {
    HostNumber host = f->Host("h" + std::to_string(h));
    for (int w = 0; w < windows; ++w) {
      std::vector<BlockRow> block;
      for (int r = 0; r < rows; ++r) {
        block.push_back(Write(0, f->Actor("c" + std::to_string(r)), 0, 1, 4096));
      }
      uint64_t start = kDawn + static_cast<uint64_t>(w) * 10 * kSecond;
      f->store().AddRows(host, start, start + 10 * kSecond, block);
    }
  }
}

v1::TopRequest WholeDay() {
  v1::TopRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + 24 * kHour);
  return request;
}

TEST(LimitsTest, MalformedRequests) {
  QueryFixture f;
  Fill(&f, 2, 1, 2);
  auto top = [&](auto change) {
    v1::TopRequest request;
    change(&request);
    v1::TopResponse r;
    grpc::Status s = f.Call(&Stub::Top, request, &r);
    EXPECT_EQ(s.error_code(), StatusCode::INVALID_ARGUMENT) << request.ShortDebugString();
    EXPECT_EQ(r.ByteSizeLong(), 0u);
    return s.error_message();
  };
  using R = v1::TopRequest*;
  EXPECT_THAT(top([](R r) { r->set_selector("role=db"); }), HasSubstr("position 6"));
  EXPECT_THAT(top([](R r) { r->set_selector("role=~\"(\""); }), HasSubstr("regular expression"));
  EXPECT_THAT(top([](R r) { r->set_selector(std::string(5000, ' ')); }), HasSubstr("at most"));
  EXPECT_THAT(top([](R r) { r->set_limit(10001); }), HasSubstr("10000"));
  EXPECT_THAT(top([](R r) { r->add_by(static_cast<v1::Dimension>(99)); }), HasSubstr("99"));
  EXPECT_THAT(top([](R r) { r->add_by(v1::DIMENSION_UNSPECIFIED); }), HasSubstr("dimension 0"));
  EXPECT_THAT(top([](R r) { r->add_by(v1::DIMENSION_COMM), r->add_by(v1::DIMENSION_COMM); }),
              HasSubstr("comm stands there twice"));
  EXPECT_THAT(top([](R r) { r->set_side(static_cast<v1::Side>(7)); }), HasSubstr("side"));
  EXPECT_THAT(top([](R r) { r->set_order_by(static_cast<v1::OrderBy>(77)); }),
              HasSubstr("order_by"));
  EXPECT_THAT(top([](R r) { *r->mutable_range() = Range(kDawn, kDawn); }), HasSubstr("before"));
  EXPECT_THAT(top([](R r) { *r->mutable_range() = Range(kDawn, kDawn - 1); }),
              HasSubstr("2023-11-15T00:00:00"));
  EXPECT_THAT(top([](R r) { *r->mutable_range() = Range(0, UINT64_MAX); }), HasSubstr("2262"));
  EXPECT_THAT(top([](R r) { r->mutable_range()->set_start_unix_ns(UINT64_MAX); }),
              HasSubstr("2262"));
  EXPECT_THAT(top([](R r) { r->mutable_filter()->set_cgroup_regex("["); }),
              HasSubstr("filter.cgroup_regex"));
  EXPECT_THAT(top([](R r) { r->mutable_filter()->set_file_regex(std::string(2000, 'x')); }),
              HasSubstr("at most 1024"));
  EXPECT_THAT(top([](R r) { r->mutable_filter()->set_file_regex("((x{100}){100}){100}"); }),
              HasSubstr("filter.file_regex"));
  EXPECT_THAT(top([](R r) { r->mutable_filter()->add_operations(static_cast<v1::Operation>(31)); }),
              HasSubstr("operation 31"));
  EXPECT_THAT(
      top([](R r) { r->mutable_filter()->add_confidences(static_cast<v1::Confidence>(-1)); }),
      HasSubstr("confidence -1"));
  EXPECT_THAT(top([](R r) { r->mutable_filter()->add_intents("zz"); }), HasSubstr("hexadecimal"));
  EXPECT_THAT(top([](R r) {
                for (int i = 0; i < 1001; ++i) r->mutable_filter()->add_comms("x");
              }),
              HasSubstr("filter.comms"));

  v1::SeriesRequest series;
  *series.mutable_range() = Range(kDawn, kDawn + 24 * kHour);
  series.set_step_ns(1);
  series.set_limit(500);
  v1::SeriesResponse lines;
  grpc::Status s = f.Call(&Stub::Series, series, &lines);
  EXPECT_EQ(s.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(s.error_message(), HasSubstr("lower limit or a longer step"));

  v1::SearchIntentsRequest search;
  v1::SearchIntentsResponse found;
  s = f.Call(&Stub::SearchIntents, search, &found);
  EXPECT_EQ(s.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(s.error_message(), HasSubstr("frame_regex"));
  search.set_frame_regex("a(");
  EXPECT_EQ(f.Call(&Stub::SearchIntents, search, &found).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST(LimitsTest, RowBudget) {
  QueryOptions options;
  options.budget.max_rows = 100;
  QueryFixture f(options);
  Fill(&f, 3, 10, 5);
  v1::TopResponse r;
  grpc::Status s = f.Call(&Stub::Top, WholeDay(), &r);
  EXPECT_EQ(s.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(s.error_message(), HasSubstr("100 rows"));
  EXPECT_THAT(s.error_message(), HasSubstr("shorter time range"));
  v1::TopRequest narrow = WholeDay();
  narrow.set_selector("host=\"h1\"");
  EXPECT_TRUE(f.Call(&Stub::Top, narrow, &r).ok());
}

TEST(LimitsTest, ByteAndGroupBudget) {
  QueryOptions options;
  options.budget.max_bytes = 1000;
  QueryFixture bytes(options);
  Fill(&bytes, 1, 10, 5);
  v1::TopResponse r;
  grpc::Status s = bytes.Call(&Stub::Top, WholeDay(), &r);
  EXPECT_EQ(s.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(s.error_message(), HasSubstr("1000 bytes"));

  QueryOptions few;
  few.budget.max_groups = 4;
  QueryFixture groups(few);
  Fill(&groups, 1, 1, 5);
  v1::TopRequest request = WholeDay();
  EXPECT_TRUE(groups.Call(&Stub::Top, request, &r).ok());
  request.add_by(v1::DIMENSION_COMM);
  s = groups.Call(&Stub::Top, request, &r);
  EXPECT_EQ(s.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(s.error_message(), HasSubstr("4 groups"));
}

TEST(LimitsTest, AnswersBeforeTheDeadline) {
  QueryFixture f;
  Fill(&f, 1, 200, 1);
  f.store().OnScan([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  v1::TopResponse r;
  grpc::Status s = f.stub().Top(&context, WholeDay(), &r);
  EXPECT_EQ(s.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(s.error_message(), HasSubstr("ran out of time"));
  EXPECT_THAT(s.error_message(), HasSubstr("longer deadline"));
}

TEST(LimitsTest, OwnTimeLimit) {
  QueryOptions options;
  options.max_duration = absl::Milliseconds(100);
  QueryFixture f(options);
  Fill(&f, 1, 100, 1);
  f.store().OnScan([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  v1::TopResponse r;
  EXPECT_EQ(f.Call(&Stub::Top, WholeDay(), &r).error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

// Lets scans begin and then holds them until it is opened.
class Door {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void AwaitWaiting(int n) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= n; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

TEST(LimitsTest, CancelledQueryStopsScanning) {
  QueryOptions options;
  options.scan_helpers = 0;
  options.max_running = 1;
  QueryFixture f(options);
  Fill(&f, 1, 1000, 1);
  Door door;
  std::atomic<int> blocks{0};
  f.store().OnScan([&] {
    if (++blocks == 1) door.Pass();
  });
  grpc::ClientContext context;
  f.Prepare(&context);
  grpc::Status status;
  std::thread client([&] {
    v1::TopResponse r;
    status = f.stub().Top(&context, WholeDay(), &r);
  });
  door.AwaitWaiting(1);
  context.TryCancel();
  client.join();
  EXPECT_EQ(status.error_code(), StatusCode::CANCELLED);
  // The server learns of it soon; then the scan goes on and must stop at once.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  door.Open();
  // The only runner is free again.
  v1::TopResponse r;
  f.store().OnScan(nullptr);
  EXPECT_TRUE(f.Call(&Stub::Top, WholeDay(), &r).ok());
  EXPECT_LT(blocks.load(), 1000);
}

TEST(LimitsTest, TooManyQueriesAreRefused) {
  QueryOptions options;
  options.max_running = 1;
  options.max_queued = 1;
  options.scan_helpers = 0;
  QueryFixture f(options);
  Fill(&f, 1, 1, 1);
  Door door;
  f.store().OnScan([&] { door.Pass(); });
  auto ask = [&] {
    v1::TopResponse r;
    return f.Call(&Stub::Top, WholeDay(), &r);
  };
  grpc::Status first, second;
  std::thread one([&] { first = ask(); });
  door.AwaitWaiting(1);
  std::thread two([&] { second = ask(); });
  // Until `two` waits in the queue a third would take its place.
  grpc::Status third;
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
    v1::TopResponse r;
    third = f.stub().Top(&context, WholeDay(), &r);
    if (third.error_code() == StatusCode::RESOURCE_EXHAUSTED) break;
  }
  EXPECT_EQ(third.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(third.error_message(), HasSubstr("try again"));
  door.Open();
  one.join();
  two.join();
  EXPECT_TRUE(first.ok()) << first.error_message();
}

TEST(LimitsTest, ManyClientsAtOnce) {
  QueryFixture f;
  Fill(&f, 20, 20, 5);
  std::atomic<int> ok{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        v1::TopRequest request = WholeDay();
        request.add_by(v1::DIMENSION_COMM);
        request.add_by(v1::DIMENSION_HOST);
        v1::TopResponse r;
        if (!f.Call(&Stub::Top, request, &r).ok()) continue;
        if (r.rows_size() == 20 && r.omitted_groups() == 80) ++ok;
      }
    });
  }
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(ok.load(), 16 * 20);
}

}  // namespace
}  // namespace fleetblame::aggregator
