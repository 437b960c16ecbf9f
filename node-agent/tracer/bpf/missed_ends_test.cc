// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/missed_ends.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

TEST(NewestWithinTest, TheOldestGoFirstAndNoMoreThanTheKernelCounted) {
  const std::vector<std::pair<uint64_t, uint64_t>> ios = {{30, 4096}, {10, 4096}, {20, 512}};
  EXPECT_EQ(NewestWithin(ios, 4095), 0u);
  EXPECT_EQ(NewestWithin(ios, 4096), 10u);
  EXPECT_EQ(NewestWithin(ios, 4608), 20u);
  EXPECT_EQ(NewestWithin(ios, 8703), 20u);
  EXPECT_EQ(NewestWithin(ios, 8704), 30u);
  EXPECT_EQ(NewestWithin(ios, -1), 0u);
  EXPECT_EQ(NewestWithin({}, 4096), 0u);
}

// A small one behind a large one that does not fit may not jump the queue.
TEST(NewestWithinTest, NothingIsPassedOver) {
  EXPECT_EQ(NewestWithin({{10, 4096}, {20, 512}}, 512), 0u);
}

}  // namespace
}  // namespace fleetblame::agent
