// SPDX-License-Identifier: Apache-2.0
//
// The symbolizer on the symbol table of the machine that runs the test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "node-agent/symbols/symbolizer.h"

namespace fleetblame::agent {
namespace {

int64_t ReadStatusKb(const char* field) {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with(field)) return std::stoll(line.substr(line.find(':') + 1));
  }
  return -1;
}

TEST(LiveKallsyms, FitsTheAgentsMemoryAndFindsKernelFunctions) {
  std::ifstream first("/proc/kallsyms");
  if (!first) GTEST_SKIP() << "/proc/kallsyms is not readable here";
  Symbolizer symbolizer;
  int64_t before_kb = ReadStatusKb("VmRSS");
  auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(symbolizer.Refresh(first).ok());
  auto took = std::chrono::steady_clock::now() - begin;
  if (!symbolizer.limitation().empty()) GTEST_SKIP() << symbolizer.limitation();
  int64_t grown_kb = ReadStatusKb("VmRSS") - before_kb;
  int64_t peak_kb = ReadStatusKb("VmHWM") - before_kb;
  std::ifstream second("/proc/kallsyms");
  ASSERT_TRUE(symbolizer.Refresh(second).ok());
  int64_t again_peak_kb = ReadStatusKb("VmHWM") - before_kb;
  std::cout << symbolizer.stats().lines << " lines, " << symbolizer.table().size()
            << " functions kept in " << symbolizer.table().memory_bytes() / 1024
            << " KiB; resident +" << grown_kb << " KiB (peak +" << peak_kb << ", second reading +"
            << again_peak_kb << ") in "
            << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms\n";
  EXPECT_GT(symbolizer.table().size(), 10000u);
  EXPECT_EQ(symbolizer.stats().malformed, 0u);
  EXPECT_LT(symbolizer.table().memory_bytes(), 16u << 20);
  EXPECT_LT(again_peak_kb, 32 * 1024);

  // Functions that every kernel with a disk has, found from a little behind their beginning.
  int found = 0;
  for (size_t i = 0; i < symbolizer.table().size(); ++i) {
    Symbol s = symbolizer.table().At(i);
    if (s.name != "vfs_write" && s.name != "vfs_read" && s.name != "vfs_fsync_range") continue;
    ++found;
    std::vector<uint64_t> address = {s.address + 1};
    EXPECT_EQ(symbolizer.Symbolize(address)[0].symbol, s.name);
  }
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace fleetblame::agent
