// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/batch_pool.h"

#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

TEST(BatchPool, ComesBackEmptyAndGivesItsBytesBack) {
  ByteBudget budget(1000);
  BatchPool pool;
  DecodedBatch* raw = nullptr;
  {
    DecodedBatchPtr batch = pool.Get();
    raw = batch.get();
    batch->batch.set_seq(7);
    batch->rows.add_ios(3);
    batch->round = 4;
    ASSERT_TRUE(budget.TryTake(500, &batch->lease));
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(pool.idle(), 1u);
  DecodedBatchPtr again = pool.Get();
  EXPECT_EQ(again.get(), raw);
  EXPECT_EQ(again->batch.seq(), 0u);
  EXPECT_EQ(again->rows.ios_size(), 0);
  EXPECT_EQ(again->round, 0u);
  EXPECT_EQ(again->lease.bytes(), 0u);
}

TEST(BatchPool, KeepsNoMoreThanItMay) {
  BatchPool pool({.idle_bytes = 200'000, .idle_batch_bytes = 100'000});
  std::vector<DecodedBatchPtr> taken;
  for (int i = 0; i < 50; ++i) {
    taken.push_back(pool.Get());
    taken.back()->rows.mutable_ios()->Resize(2'000, 1);  // 16 kB
  }
  taken.clear();
  EXPECT_GT(pool.idle(), 5u);
  EXPECT_LT(pool.idle(), 14u);
  DecodedBatchPtr large = pool.Get();
  size_t idle = pool.idle();
  large->rows.mutable_ios()->Resize(50'000, 1);
  large.reset();
  EXPECT_EQ(pool.idle(), idle);
}

}  // namespace
}  // namespace fleetblame::aggregator
