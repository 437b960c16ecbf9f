// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/cpu_meter.h"

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fleetblame::testing {
namespace {

constexpr uint64_t kBurnNs = 200'000'000;

uint64_t OwnCpuNs() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

TEST(CpuMeterTest, OwnWorkIsMeasuredAndSpinnersAreNot) {
  auto meter = CpuMeter::Create();
  ASSERT_TRUE(meter.ok()) << meter.status();
  absl::SleepFor(absl::Milliseconds(50));  // the spinners get going
  (*meter)->Start();
  const uint64_t begin = OwnCpuNs();
  while (OwnCpuNs() - begin < kBurnNs) {
  }
  const CpuUse use = (*meter)->Stop();
  EXPECT_GE(use.attributed_ns, kBurnNs);
  // Others may run meanwhile, but at the least our own work is there, within two clock ticks of
  // what /proc/stat rounds.
  EXPECT_GE(use.busy_ns + 20'000'000 * sysconf(_SC_NPROCESSORS_ONLN), kBurnNs);
  EXPECT_LE(use.busy_ns, use.wall_ns * sysconf(_SC_NPROCESSORS_ONLN));
}

TEST(CpuMeterTest, IdlingCostsNothing) {
  auto meter = CpuMeter::Create();
  ASSERT_TRUE(meter.ok()) << meter.status();
  absl::SleepFor(absl::Milliseconds(50));
  (*meter)->Start();
  absl::SleepFor(absl::Milliseconds(300));
  const CpuUse use = (*meter)->Stop();
  EXPECT_GE(use.wall_ns, 300'000'000u);
  EXPECT_LT(use.attributed_ns, use.wall_ns / 2);
}

}  // namespace
}  // namespace fleetblame::testing
