// SPDX-License-Identifier: Apache-2.0
//
// The small parts: pool, context, ranges, histograms, statistics, caches, memos.
#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "aggregator/query/aggregate.h"
#include "aggregator/query/definition_cache.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/memo.h"
#include "aggregator/query/query_context.h"
#include "aggregator/query/robust.h"
#include "aggregator/query/shared_labels.h"
#include "aggregator/query/task_pool.h"
#include "aggregator/query/time_range.h"
#include "aggregator/store/testing/fake_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using ::testing::HasSubstr;

TEST(TaskPoolTest, RunsEverythingAndRefusesWhatDoesNotFit) {
  std::atomic<int> done{0};
  {
    absl::Mutex gate;
    gate.Lock();
    TaskPool pool(1, 2);
    ASSERT_TRUE(pool.TrySubmit([&] {
      absl::MutexLock lock(&gate);
      ++done;
    }));
    while (pool.running() == 0) std::this_thread::yield();
    EXPECT_TRUE(pool.TrySubmit([&] { ++done; }));
    EXPECT_TRUE(pool.TrySubmit([&] { ++done; }));
    EXPECT_FALSE(pool.TrySubmit([&] { ++done; }));
    EXPECT_EQ(pool.queued(), 2u);
    gate.Unlock();
  }
  EXPECT_EQ(done.load(), 3);
  TaskPool none(0, 10);
  EXPECT_FALSE(none.TrySubmit([] {}));
}

TEST(TaskPoolTest, ParallelForVisitsEachItemOnce) {
  TaskPool pool(3, 100);
  for (size_t items : {0u, 1u, 2u, 3u, 1000u}) {
    std::vector<std::atomic<int>> visits(items);
    std::vector<std::atomic<int>> inside(4);
    ParallelFor(&pool, items, [&](size_t i, int worker) {
      EXPECT_EQ(inside[static_cast<size_t>(worker)]++, 0);
      ++visits[i];
      --inside[static_cast<size_t>(worker)];
    });
    for (auto& v : visits) EXPECT_EQ(v.load(), 1);
  }
  // Without helpers, and with helpers that have no time.
  int sum = 0;
  ParallelFor(nullptr, 5, [&](size_t i, int) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 10);
  absl::Mutex gate;
  gate.Lock();
  TaskPool busy(1, 10);
  ASSERT_TRUE(busy.TrySubmit([&] { absl::MutexLock lock(&gate); }));
  std::atomic<int> count{0};
  ParallelFor(&busy, 10, [&](size_t, int) { ++count; });
  EXPECT_EQ(count.load(), 10);
  gate.Unlock();
}

TEST(QueryContextTest, FirstFailureCounts) {
  QueryBudget budget;
  budget.max_rows = 10;
  QueryContext context(budget, absl::InfiniteFuture(), nullptr);
  EXPECT_TRUE(context.Charge(10, 0));
  EXPECT_TRUE(context.status().ok());
  EXPECT_FALSE(context.Charge(1, 0));
  context.Fail(absl::InternalError("later"));
  EXPECT_EQ(context.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(context.KeepGoing());
  EXPECT_EQ(context.rows(), 11u);
}

TEST(QueryContextTest, ClockAndClient) {
  QueryContext late(QueryBudget(), absl::Now() - absl::Seconds(1), nullptr);
  EXPECT_FALSE(late.KeepGoing());
  EXPECT_EQ(late.status().code(), absl::StatusCode::kResourceExhausted);
  bool gone = false;
  QueryContext context(QueryBudget(), absl::InfiniteFuture(), [&] { return gone; });
  EXPECT_TRUE(context.KeepGoing());
  gone = true;
  EXPECT_FALSE(context.KeepGoing());
  EXPECT_EQ(context.status().code(), absl::StatusCode::kCancelled);
}

TEST(TimeRangeTest, AbsentEnds) {
  const uint64_t now = 100 * kHourNs;
  v1::TimeRange range;
  EXPECT_EQ(ResolveRange(range, now)->start_unix_ns, 99 * kHourNs);
  EXPECT_EQ(ResolveRange(range, now)->end_unix_ns, now);
  range.set_end_unix_ns(50 * kHourNs);
  EXPECT_EQ(ResolveRange(range, now)->start_unix_ns, 49 * kHourNs);
  range.set_end_unix_ns(kHourNs / 2);
  EXPECT_EQ(ResolveRange(range, now)->start_unix_ns, 0u);
  range.set_start_unix_ns(kHourNs);
  EXPECT_FALSE(ResolveRange(range, now).ok());
  range.set_end_unix_ns(0);
  range.set_start_unix_ns(0);
  EXPECT_FALSE(ResolveRange(range, now).ok());
}

TEST(DenseHistogramTest, EqualsTheSparseOne) {
  std::set<int> corners = {0, 1, 5, 60, 100, 192, 193};
  SparseHistogram sparse;
  DenseHistogram left, right;
  for (int bucket : corners) {
    const uint32_t at[] = {static_cast<uint32_t>(bucket), static_cast<uint32_t>(193 - bucket)};
    const uint64_t counts[] = {static_cast<uint64_t>(bucket) + 1, 1};
    (bucket % 2 == 0 ? left : right).Add(BucketSpan{&at[0], &counts[0], 1});
    // From the middle outward too.
    left.Add(BucketSpan{&at[1], &counts[1], 1});
    sparse.Add(bucket, counts[0]);
    sparse.Add(193 - bucket, 1);
  }
  DenseHistogram sum;
  sum.Merge(left);
  sum.Merge(right);
  v1::Histogram out;
  sum.Store(&out);
  ASSERT_EQ(static_cast<size_t>(out.buckets_size()), sparse.entries().size());
  for (int i = 0; i < out.buckets_size(); ++i) {
    EXPECT_EQ(out.buckets(i), sparse.entries()[static_cast<size_t>(i)].first);
    EXPECT_EQ(out.counts(i), sparse.entries()[static_cast<size_t>(i)].second);
  }
  v1::Histogram empty;
  DenseHistogram().Store(&empty);
  EXPECT_EQ(empty.buckets_size(), 0);
}

TEST(RobustTest, HandComputed) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({4, 1}), 2.5);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  RobustScale s = MeasureSpread({1, 2, 3, 4, 100});
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.mad, 1);
  EXPECT_NEAR(*s.Z(100), 97 / 1.4826, 1e-9);
  // More than half are equal: the mean absolute deviation stands in.
  s = MeasureSpread({5, 5, 5, 5, 9});
  EXPECT_EQ(s.mad, 0);
  EXPECT_NEAR(*s.Z(9), 4 / (1.2533 * 0.8), 1e-9);
  EXPECT_FALSE(MeasureSpread({5, 5, 5}).Z(5).has_value());
  EXPECT_FALSE(MeasureSpread({1, 9}).Z(9).has_value());
}

TEST(SharedLabelsTest, OnlyWhatOutliersHaveMoreOften) {
  auto host = [](std::map<std::string, std::string> labels, const char* kernel) {
    HostRecord h;
    h.labels = std::move(labels);
    h.kernel_release = kernel;
    return h;
  };
  HostRecord a = host({{"dc", "fra"}, {"disk", "old"}, {"os", "12"}}, "6.1");
  HostRecord b = host({{"dc", "iad"}, {"disk", "old"}, {"os", "12"}}, "6.1");
  HostRecord c = host({{"dc", "fra"}, {"disk", "new"}, {"os", "12"}}, "6.1");
  HostRecord d = host({{"dc", "fra"}, {"disk", "new"}, {"os", "12"}}, "6.1");
  auto labels = FindSharedLabels({&a, &b}, {&c, &d});
  ASSERT_EQ(labels.size(), 2u);
  EXPECT_EQ(labels[0].name(), "disk");
  EXPECT_EQ(labels[0].value(), "old");
  EXPECT_EQ(labels[0].outliers_with(), 2u);
  EXPECT_EQ(labels[0].others_with(), 0u);
  EXPECT_EQ(labels[1].name(), "dc");
  EXPECT_EQ(labels[1].value(), "iad");
  EXPECT_TRUE(FindSharedLabels({}, {&c}).empty());
}

TEST(GenerationCacheTest, ForgetsWhatIsNotAskedFor) {
  GenerationCache<int> cache(10);
  int loads = 0;
  auto get = [&](uint32_t n) {
    auto v = cache.Get(n, [&]() -> absl::StatusOr<int> { return ++loads, static_cast<int>(n); });
    EXPECT_EQ(**v, static_cast<int>(n));
  };
  for (int round = 0; round < 100; ++round) {
    get(7);  // always wanted
    get(1000 + static_cast<uint32_t>(round));
  }
  EXPECT_EQ(loads, 101);
  EXPECT_LE(cache.size(), 13u);
  auto failed =
      cache.Get(5, []() -> absl::StatusOr<int> { return absl::NotFoundError("no such number"); });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kNotFound);
  get(5);
}

TEST(MemoTest, ComputesOnceAndSurvivesWildNumbers) {
  Memo<uint8_t, 0> memo;
  int computed = 0;
  auto one = [&](uint32_t) -> uint8_t { return ++computed, 1; };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(memo.Get(1000, one), 1);
  EXPECT_EQ(computed, 1);
  EXPECT_EQ(memo.Get(UINT32_MAX, one), 1);
  EXPECT_EQ(memo.Get(UINT32_MAX, one), 1);
  EXPECT_EQ(computed, 3);
}

// With and without the second pass for histograms the answer is the same.
TEST(GroupScanTest, LeanAndWholeAgree) {
  FakeStore store;
  for (int h = 0; h < 10; ++h) {
    HostRecord record;
    record.host_id = std::string(1, static_cast<char>('a' + h));
    HostNumber host = *store.UpsertHost(record);
    for (uint64_t w = 0; w < 20; ++w) {
      std::vector<BlockRow> rows;
      for (uint32_t i = 1; i <= 8; ++i) {
        BlockRow row;
        row.dirtier_intent = i;
        row.ios = 1;
        row.bytes = i * 100 + static_cast<uint64_t>(h);
        row.wait.Add(static_cast<int>(i + w), 1);
        row.io.Add(static_cast<int>(100 + i), 1);
        rows.push_back(row);
      }
      store.AddRows(host, w * kSecondNs, (w + 1) * kSecondNs, rows);
    }
  }
  auto view = store.NewReadView();
  auto hosts = HostSet::Choose(*view, "");
  ASSERT_TRUE(hosts.ok());
  TaskPool helpers(2, 10);
  DefinitionCache cache;
  const Grouping grouping({v1::DIMENSION_INTENT}, v1::SIDE_DIRTIER);
  const RowFilter filter;
  auto run = [&](size_t lean_groups) {
    QueryContext context(QueryBudget(), absl::InfiniteFuture(), nullptr);
    Names names(view.get(), &cache);
    GroupQuery query;
    query.grouping = &grouping;
    query.filter = &filter;
    query.plan.range = {0, 20 * kSecondNs, Level::k1d};
    query.limit = 3;
    query.lean_groups = lean_groups;
    auto result = RunGroups({view.get(), &*hosts, &context, &helpers}, &names, query);
    EXPECT_TRUE(result.ok());
    std::string text;
    for (const RankedGroup& g : result->ranking.top) {
      v1::Metrics metrics;
      g.group.total.Store(&metrics);
      metrics.set_hosts(g.group.hosts);
      text += std::to_string(g.key.parts[0]) + ": " + metrics.ShortDebugString() + "\n";
    }
    return text;
  };
  const std::string whole = run(kLeanGroups);
  EXPECT_THAT(whole, HasSubstr("8: ios: 200"));
  EXPECT_THAT(whole, HasSubstr("hosts: 10"));
  EXPECT_EQ(run(2), whole);
  EXPECT_EQ(run(0), whole);
}

}  // namespace
}  // namespace fleetblame::aggregator
