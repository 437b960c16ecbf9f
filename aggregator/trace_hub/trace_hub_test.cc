// SPDX-License-Identifier: Apache-2.0
#include "aggregator/trace_hub/trace_hub.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

v1::TraceDirective Want(uint64_t min_total_ns = 0) {
  v1::TraceDirective want;
  want.set_max_duration_ns(60'000'000'000);
  want.set_min_total_ns(min_total_ns);
  return want;
}

v1::TraceEvents Events(uint64_t trace_id, std::vector<uint64_t> io_ns, const char* device = "sda",
                       v1::Operation operation = v1::OPERATION_WRITE) {
  v1::TraceEvents events;
  events.set_trace_id(trace_id);
  for (uint64_t ns : io_ns) {
    v1::TraceEvent* event = events.add_events();
    event->set_io_ns(ns);
    event->set_device(device);
    event->set_operation(operation);
  }
  return events;
}

std::unique_ptr<TraceSubscription> MustSubscribe(TraceHub& hub, const v1::TraceDirective& want,
                                                 std::function<void()> on_ready = nullptr) {
  auto subscription = hub.Subscribe({"a"}, want, std::move(on_ready));
  EXPECT_TRUE(subscription.ok()) << subscription.status();
  return *std::move(subscription);
}

TEST(TraceHub, NobodyWatchesNothingIsTraced) {
  auto hub = TraceHub::Create({});
  EXPECT_FALSE(hub->DirectiveFor("a").has_value());
  hub->Publish("a", Events(7, {1, 2}));
  EXPECT_EQ(hub->stats().stale_events, 2u);
}

TEST(TraceHub, DeliversToTheHostsSubscriberAndWakesItOnce) {
  auto hub = TraceHub::Create({});
  int woken = 0;
  auto subscription = MustSubscribe(*hub, Want(), [&] { ++woken; });
  uint64_t id = hub->DirectiveFor("a")->trace_id();
  hub->Publish("a", Events(id, {1}));
  hub->Publish("a", Events(id, {2}));
  hub->Publish("b", Events(id, {3}));
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(subscription->Take()->events[0].io_ns(), 1u);
  EXPECT_EQ(subscription->Take()->events[0].io_ns(), 2u);
  EXPECT_FALSE(subscription->Take().has_value());
  hub->Publish("a", Events(id, {4}));
  EXPECT_EQ(woken, 2);
}

TEST(TraceHub, TellsTheAgentTheUnionAndGivesEachItsOwn) {
  auto hub = TraceHub::Create({});
  v1::TraceDirective slow = Want(1000);
  slow.add_operations(v1::OPERATION_WRITE);
  slow.add_devices("sd*");
  auto slow_writes = MustSubscribe(*hub, slow);
  v1::TraceDirective reads = Want();
  reads.add_operations(v1::OPERATION_READ);
  reads.add_devices("nvme0n1");
  auto all_reads = MustSubscribe(*hub, reads);

  auto directive = hub->DirectiveFor("a");
  EXPECT_EQ(directive->operations_size(), 2);
  EXPECT_EQ(directive->devices_size(), 2);
  EXPECT_EQ(directive->min_total_ns(), 0u);
  EXPECT_LE(directive->max_duration_ns(), 60'000'000'000u);

  hub->Publish("a", Events(directive->trace_id(), {999, 1000}, "sdb"));
  hub->Publish("a", Events(directive->trace_id(), {5}, "nvme0n1", v1::OPERATION_READ));
  auto chunk = slow_writes->Take();
  ASSERT_EQ(chunk->events.size(), 1u);
  EXPECT_EQ(chunk->events[0].io_ns(), 1000u);
  EXPECT_FALSE(slow_writes->Take().has_value());
  EXPECT_EQ(all_reads->Take()->events[0].io_ns(), 5u);
}

TEST(TraceHub, ListenerHearsOfEachChangeAndTheEnd) {
  auto hub = TraceHub::Create({});
  std::vector<bool> on;
  hub->SetListener([&](const std::vector<std::string>& hosts) {
    ASSERT_EQ(hosts, std::vector<std::string>{"a"});
    on.push_back(hub->DirectiveFor("a").has_value());
  });
  auto first = MustSubscribe(*hub, Want(100));
  uint64_t first_id = hub->DirectiveFor("a")->trace_id();
  auto second = MustSubscribe(*hub, Want(50));
  EXPECT_NE(hub->DirectiveFor("a")->trace_id(), first_id);
  // Events of the trace before are still under way and still wanted.
  hub->Publish("a", Events(first_id, {200}));
  EXPECT_TRUE(first->Take().has_value());
  second.reset();
  first.reset();
  EXPECT_EQ(on, (std::vector<bool>{true, true, true, false}));
}

TEST(TraceHub, FullQueueDropsAndCounts) {
  auto hub = TraceHub::Create({.max_subscriptions = 4, .queue_bytes = 4096});
  auto subscription = MustSubscribe(*hub, Want());
  uint64_t id = hub->DirectiveFor("a")->trace_id();
  for (int i = 0; i < 100; ++i) hub->Publish("a", Events(id, {1}));
  uint64_t got = 0, dropped = 0;
  while (auto chunk = subscription->Take()) {
    got += chunk->events.size();
    dropped += chunk->dropped;
  }
  EXPECT_GT(got, 0u);
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(got + dropped, 100u);
  EXPECT_EQ(hub->stats().dropped_events, dropped);
}

TEST(TraceHub, RateLimitIsPerSubscriber) {
  auto hub = TraceHub::Create({});
  v1::TraceDirective limited = Want();
  limited.set_max_events_per_second(3);
  auto few = MustSubscribe(*hub, limited);
  auto all = MustSubscribe(*hub, Want());
  uint64_t id = hub->DirectiveFor("a")->trace_id();
  hub->Publish("a", Events(id, {1, 2, 3, 4, 5}));
  auto chunk = few->Take();
  EXPECT_EQ(chunk->events.size(), 3u);
  chunk = few->Take();
  EXPECT_EQ(chunk->dropped, 2u);
  EXPECT_EQ(all->Take()->events.size(), 5u);
}

TEST(TraceHub, LossesOfTheAgentArriveWithoutEvents) {
  auto hub = TraceHub::Create({});
  auto subscription = MustSubscribe(*hub, Want());
  v1::TraceEvents events;
  events.set_trace_id(hub->DirectiveFor("a")->trace_id());
  events.set_dropped(9);
  hub->Publish("a", events);
  auto chunk = subscription->Take();
  EXPECT_EQ(chunk->dropped, 9u);
  EXPECT_TRUE(chunk->events.empty());
}

TEST(TraceHub, RefusesTooManyAndEmptyOnes) {
  auto hub = TraceHub::Create({.max_subscriptions = 1, .queue_bytes = 4096});
  auto first = MustSubscribe(*hub, Want());
  EXPECT_EQ(hub->Subscribe({"a"}, Want(), nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
  first.reset();
  EXPECT_TRUE(hub->Subscribe({"a"}, Want(), nullptr).ok());
  EXPECT_EQ(hub->Subscribe({}, Want(), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(hub->Subscribe({"a"}, v1::TraceDirective(), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TraceHub, NoCallbackAfterTheSubscriptionIsGone) {
  auto hub = TraceHub::Create({});
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    while (!stop) {
      auto directive = hub->DirectiveFor("a");
      if (directive) hub->Publish("a", Events(directive->trace_id(), {1}));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    auto alive = std::make_unique<bool>(true);
    auto subscription = MustSubscribe(*hub, Want(), [&alive] { EXPECT_TRUE(*alive); });
    subscription->Take();
    subscription.reset();
    *alive = false;
  }
  stop = true;
  publisher.join();
}

}  // namespace
}  // namespace fleetblame::aggregator
