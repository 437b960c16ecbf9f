// SPDX-License-Identifier: Apache-2.0
//
// Query.Trace from the hub to a client: what arrives, when it ends, and clients that misbehave.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "aggregator/query/testing/query_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TraceTest : public ::testing::Test {
 protected:
  explicit TraceTest(QueryOptions options = {}) : f_(options) {
    f_.Host("a", {{"role", "db"}});
    f_.Host("b", {{"role", "db"}});
    f_.Host("c");
    f_.hub().HostConnected("a");
    f_.hub().HostConnected("b");
  }

  // As the stream of an agent would.
  void Publish(const std::string& host, int events, uint64_t dropped = 0,
               v1::Operation operation = v1::OPERATION_WRITE) {
    v1::TraceEvents batch;
    auto directive = f_.hub().DirectiveFor(host);
    if (!directive.has_value()) return;
    batch.set_trace_id(directive->trace_id());
    batch.set_dropped(dropped);
    for (int i = 0; i < events; ++i) {
      v1::TraceEvent* e = batch.add_events();
      e->set_device("sda");
      e->set_operation(operation);
      e->set_sector(static_cast<uint64_t>(i));
      e->set_io_ns(100);
    }
    f_.hub().Publish(host, std::move(batch));
  }
  bool AwaitDirective(const std::string& host, bool present) {
    for (int i = 0; i < 500; ++i) {
      if (f_.hub().DirectiveFor(host).has_value() == present) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  grpc::Status Refused(const v1::TraceRequest& request) {
    grpc::ClientContext context;
    f_.Prepare(&context);
    auto reader = f_.stub().Trace(&context, request);
    v1::TraceResponse r;
    EXPECT_FALSE(reader->Read(&r));
    return reader->Finish();
  }

  QueryFixture f_;
};

TEST_F(TraceTest, EventsArriveInOrderWithTheirHost) {
  grpc::ClientContext context;
  f_.Prepare(&context);
  v1::TraceRequest request;
  request.set_selector("role=\"db\"");
  request.add_operations(v1::OPERATION_WRITE);
  request.add_devices("sd*");
  auto reader = f_.stub().Trace(&context, request);
  v1::TraceResponse r;
  ASSERT_TRUE(reader->Read(&r));
  EXPECT_THAT(r.hosts(), ElementsAre("a.example", "b.example"));
  EXPECT_EQ(r.events_size(), 0);
  auto directive = f_.hub().DirectiveFor("a");
  ASSERT_TRUE(directive.has_value());
  EXPECT_THAT(directive->operations(), ElementsAre(v1::OPERATION_WRITE));
  EXPECT_THAT(directive->devices(), ElementsAre("sd*"));
  EXPECT_FALSE(f_.hub().DirectiveFor("c").has_value());

  Publish("a", 2);
  Publish("a", 1, 0, v1::OPERATION_READ);  // not asked for
  Publish("b", 1, 5);
  uint64_t from_a = 0, from_b = 0, dropped = 0;
  while (from_a < 2 || from_b < 1) {
    ASSERT_TRUE(reader->Read(&r));
    EXPECT_EQ(r.hostname(), r.host_id() + ".example");
    for (const v1::TraceEvent& e : r.events()) {
      EXPECT_EQ(e.operation(), v1::OPERATION_WRITE);
      if (r.host_id() == "a") {
        EXPECT_EQ(e.sector(), from_a++);
      } else {
        ++from_b;
      }
    }
    dropped += r.dropped();
  }
  EXPECT_EQ(dropped, 5u);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(AwaitDirective("a", false)) << "agents are told that nobody watches any more";
}

TEST_F(TraceTest, ManyEventsAreCutIntoResponses) {
  grpc::ClientContext context;
  f_.Prepare(&context);
  v1::TraceRequest request;
  request.set_selector("host=\"a\"");
  auto reader = f_.stub().Trace(&context, request);
  v1::TraceResponse r;
  ASSERT_TRUE(reader->Read(&r));
  Publish("a", 3000);
  uint64_t next = 0;
  while (next < 3000) {
    ASSERT_TRUE(reader->Read(&r));
    EXPECT_LE(r.events_size(), 500);
    for (const v1::TraceEvent& e : r.events()) EXPECT_EQ(e.sector(), next++);
  }
  context.TryCancel();
  reader->Finish();
}

TEST_F(TraceTest, EndsWithItsDuration) {
  grpc::ClientContext context;
  f_.Prepare(&context);
  v1::TraceRequest request;
  request.set_selector("host=\"a\"");
  request.set_max_duration_ns(300'000'000);
  auto reader = f_.stub().Trace(&context, request);
  v1::TraceResponse r;
  ASSERT_TRUE(reader->Read(&r));
  EXPECT_FALSE(reader->Read(&r));
  grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(AwaitDirective("a", false));
}

TEST_F(TraceTest, Refusals) {
  v1::TraceRequest request;
  request.set_selector("role=");
  EXPECT_EQ(Refused(request).error_code(), StatusCode::INVALID_ARGUMENT);
  request.set_selector("role=\"none\"");
  EXPECT_EQ(Refused(request).error_code(), StatusCode::NOT_FOUND);
  request.set_selector("host=\"c\"");
  grpc::Status s = Refused(request);
  EXPECT_EQ(s.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(s.error_message(), HasSubstr("connected"));
  request.clear_selector();
  request.set_max_hosts(2);
  s = Refused(request);
  EXPECT_EQ(s.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(s.error_message(), HasSubstr("matches 3 hosts"));
  request.set_max_hosts(5000);
  EXPECT_EQ(Refused(request).error_code(), StatusCode::INVALID_ARGUMENT);
  request.set_max_hosts(0);
  request.set_max_duration_ns(2 * kHour);
  EXPECT_EQ(Refused(request).error_code(), StatusCode::INVALID_ARGUMENT);
  request.set_max_duration_ns(0);
  request.add_operations(static_cast<v1::Operation>(55));
  EXPECT_EQ(Refused(request).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(TraceTest, ClientThatDoesNotReadLosesEventsNotMemory) {
  grpc::ClientContext context;
  f_.Prepare(&context);
  v1::TraceRequest request;
  request.set_selector("host=\"a\"");
  auto reader = f_.stub().Trace(&context, request);
  v1::TraceResponse r;
  ASSERT_TRUE(reader->Read(&r));
  constexpr uint64_t kSent = 400 * 500;
  for (int i = 0; i < 400; ++i) Publish("a", 500);
  EXPECT_GT(f_.hub().stats().dropped_events, 0u);
  // What it gets and what it is told of add up.
  uint64_t got = 0, dropped = 0;
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    Publish("a", 1);
  });
  while (got + dropped < kSent) {
    ASSERT_TRUE(reader->Read(&r)) << got << " + " << dropped;
    got += static_cast<uint64_t>(r.events_size());
    dropped += r.dropped();
  }
  EXPECT_GT(dropped, 0u);
  closer.join();
  context.TryCancel();
  reader->Finish();
}

class FewTracesTest : public TraceTest {
 protected:
  static QueryOptions Few() {
    QueryOptions options;
    options.max_traces = 2;
    return options;
  }
  FewTracesTest() : TraceTest(Few()) {}
};

TEST_F(FewTracesTest, OneTooMany) {
  v1::TraceRequest request;
  request.set_selector("host=\"a\"");
  grpc::ClientContext one, two;
  f_.Prepare(&one);
  f_.Prepare(&two);
  auto first = f_.stub().Trace(&one, request);
  auto second = f_.stub().Trace(&two, request);
  v1::TraceResponse r;
  ASSERT_TRUE(first->Read(&r));
  ASSERT_TRUE(second->Read(&r));
  grpc::Status s = Refused(request);
  EXPECT_EQ(s.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(s.error_message(), HasSubstr("2 traces are running"));
  one.TryCancel();
  first->Finish();
  // Its place is free soon.
  for (int i = 0; i < 500; ++i) {
    grpc::ClientContext again;
    f_.Prepare(&again);
    auto third = f_.stub().Trace(&again, request);
    bool began = third->Read(&r);
    again.TryCancel();
    third->Finish();
    if (began) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "no place became free";
}

// Calls that end in every possible way while events come in.
TEST_F(TraceTest, ComingAndGoingUnderLoad) {
  std::atomic<bool> stop{false};
  std::thread agent([&] {
    while (!stop) {
      Publish("a", 20);
      Publish("b", 20);
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 30; ++i) {
        grpc::ClientContext context;
        if (i % 3 == 0) {
          context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(5 * c));
        } else {
          f_.Prepare(&context);
        }
        v1::TraceRequest request;
        request.set_selector("role=\"db\"");
        if (i % 3 == 1) request.set_max_duration_ns(20'000'000);
        auto reader = f_.stub().Trace(&context, request);
        v1::TraceResponse r;
        for (int n = 0; n < i && reader->Read(&r); ++n) {
        }
        if (i % 3 == 2) context.TryCancel();
        while (reader->Read(&r)) {
        }
        reader->Finish();
      }
    });
  }
  for (std::thread& t : clients) t.join();
  stop = true;
  agent.join();
  EXPECT_TRUE(AwaitDirective("a", false));
  EXPECT_EQ(f_.hub().stats().subscriptions, 0u);
}

}  // namespace
}  // namespace fleetblame::aggregator
