// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/byte_budget.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

TEST(ByteBudget, WhatIsTakenComesBack) {
  ByteBudget budget(100);
  {
    ByteBudget::Lease a, b;
    EXPECT_TRUE(budget.TryTake(60, &a));
    EXPECT_TRUE(budget.TryTake(40, &b));
    EXPECT_EQ(budget.used_bytes(), 100u);
    ByteBudget::Lease c = std::move(a);
    EXPECT_EQ(budget.used_bytes(), 100u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ByteBudget, WaitersAreServedInOrder) {
  ByteBudget budget(100);
  ByteBudget::Lease first, late;
  std::vector<int> served;
  std::vector<ByteBudget::Lease> held;
  auto grant = [&](int who) {
    return [&, who](ByteBudget::Lease lease) {
      served.push_back(who);
      held.push_back(std::move(lease));
    };
  };
  ASSERT_TRUE(budget.TryTake(90, &first));
  EXPECT_FALSE(budget.TryTake(50, &late));
  budget.TakeOrWait(50, grant(1));
  // Would fit, but must not overtake.
  EXPECT_FALSE(budget.TryTake(5, &late));
  budget.TakeOrWait(5, grant(2));
  EXPECT_EQ(budget.waiting(), 2u);
  first.Resize(60);
  EXPECT_TRUE(served.empty());
  first.Release();
  EXPECT_EQ(served, (std::vector<int>{1, 2}));
  EXPECT_EQ(budget.used_bytes(), 55u);
  held.clear();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ByteBudget, MoreThanEverythingIsServedAlone) {
  ByteBudget budget(10);
  ByteBudget::Lease huge;
  EXPECT_TRUE(budget.TryTake(1000, &huge));
  bool granted = false;
  budget.TakeOrWait(1000, [&](ByteBudget::Lease) { granted = true; });
  EXPECT_FALSE(granted);
  huge.Release();
  EXPECT_TRUE(granted);
}

TEST(ByteBudget, ManyThreads) {
  ByteBudget budget(64);
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        budget.TakeOrWait(1 + i % 40, [&](ByteBudget::Lease) { ++served; });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served, 20000);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace fleetblame::aggregator
