// SPDX-License-Identifier: Apache-2.0
//
// The tracer on the running kernel: loads, sees an IO of its own, and refuses what it should.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/bpf/kernel_check.h"

namespace fleetblame::agent {
namespace {

std::string WhyNot() {
  if (geteuid() != 0) return "needs root";
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) return "the kernel has no BTF";
  return "";
}

TEST(KernelCheck, NamesEveryHookOnce) {
  auto lines = CheckKernel();
  ASSERT_TRUE(lines.ok()) << lines.status();
  for (const CapabilityLine& line : *lines) {
    EXPECT_FALSE(line.name.empty());
    EXPECT_FALSE(line.meaning.empty()) << line.name;
    EXPECT_EQ(line.cost.empty(), line.state == CapabilityLine::State::kYes) << line.name;
  }
}

TEST(BpfTracerLive, UnknownDeviceIsNotFound) {
  if (std::string why = WhyNot(); !why.empty()) GTEST_SKIP() << why;
  BpfTracerOptions options;
  options.devices.patterns = {"no-such-disk"};
  auto tracer = CreateBpfTracer(options);
  EXPECT_EQ(tracer.status().code(), absl::StatusCode::kNotFound) << tracer.status();
}

TEST(BpfTracerLive, TinyTablesLoseNothingSilently) {
  if (std::string why = WhyNot(); !why.empty()) GTEST_SKIP() << why;
  BpfTracerOptions options;
  options.max_stacks = options.max_actors = options.max_acts = options.max_inodes = 16;
  options.max_rows = options.max_bios = 16;
  options.max_pages = 1024;
  auto tracer = CreateBpfTracer(options);
  ASSERT_TRUE(tracer.ok()) << tracer.status();
  for (int window = 0; window < 3; ++window) {
    absl::SleepFor(absl::Milliseconds(100));
    auto snapshot = (*tracer)->Collect();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_LT(snapshot->start_boot_ns, snapshot->end_boot_ns);
    std::map<std::pair<DeviceNumber, Operation>, uint64_t> rows;
    for (const Row& row : snapshot->rows)
      rows[{row.key.device, row.key.operation}] += row.values.bytes;
    for (const Books& books : snapshot->books) {
      if (books.direction != Operation::kRead) continue;
      EXPECT_EQ(books.recorded_bytes + books.lost_bytes, (rows[{books.device, Operation::kRead}]));
    }
  }
}

TEST(BpfTracerLive, TooSmallTablesAreRefused) {
  BpfTracerOptions options;
  options.max_rows = 1;
  EXPECT_EQ(CreateBpfTracer(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fleetblame::agent
