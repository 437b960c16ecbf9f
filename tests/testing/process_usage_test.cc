// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/process_usage.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace fleetblame::testing {
namespace {

TEST(ProcessUsage, OfThisProcess) {
  rusage own{};
  do {
    getrusage(RUSAGE_SELF, &own);
  } while (own.ru_utime.tv_sec == 0 && own.ru_utime.tv_usec < 100'000);
  auto usage = UsageOf(getpid());
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_GE(usage->cpu_seconds, 0.08);
  EXPECT_GT(usage->resident_bytes, 100'000u);
  EXPECT_GE(usage->peak_resident_bytes, usage->resident_bytes);
  EXPECT_GE(usage->threads, 1);
}

TEST(ProcessUsage, NobodyIsNotFound) { EXPECT_TRUE(absl::IsNotFound(UsageOf(1 << 30).status())); }

}  // namespace
}  // namespace fleetblame::testing
