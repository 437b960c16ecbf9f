// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/disks.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

std::vector<Disk> SomeDisks() {
  return {{"dm-0", {253, 0}, true},
          {"loop0", {7, 0}, false},
          {"ram0", {1, 0}, false},
          {"sda", {8, 0}, false},
          {"sdb", {8, 16}, false}};
}

std::vector<std::string> Names(const std::vector<std::string>& patterns) {
  auto disks = SelectDisks(SomeDisks(), {patterns});
  EXPECT_TRUE(disks.ok()) << disks.status();
  std::vector<std::string> names;
  if (disks.ok()) {
    for (const Disk& disk : *disks) names.push_back(disk.name);
  }
  return names;
}

using Strings = std::vector<std::string>;

TEST(SelectDisks, EmptyMeansAllButRamAndStackedDisks) {
  EXPECT_EQ(Names({}), (Strings{"loop0", "sda", "sdb"}));
}

TEST(SelectDisks, NamesGlobsAndNumbers) {
  EXPECT_EQ(Names({"sda"}), (Strings{"sda"}));
  EXPECT_EQ(Names({"sd*"}), (Strings{"sda", "sdb"}));
  EXPECT_EQ(Names({"8:16"}), (Strings{"sdb"}));
  EXPECT_EQ(Names({"nvme*"}), Strings{});
}

TEST(SelectDisks, LastMatchWins) {
  EXPECT_EQ(Names({"sd*", "!sda"}), (Strings{"sdb"}));
  EXPECT_EQ(Names({"!sda", "sda"}), (Strings{"sda"}));
  EXPECT_EQ(Names({"!nosuch", "sda"}), (Strings{"sda"}));
}

TEST(SelectDisks, UnknownNameSaysWhatToGive) {
  auto disks = SelectDisks(SomeDisks(), {{"sdq"}});
  EXPECT_EQ(disks.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(disks.status().message().find("sdq"), std::string::npos);
}

TEST(SelectDisks, StackedDiskIsRefusedByNameAndSkippedByGlob) {
  EXPECT_EQ(SelectDisks(SomeDisks(), {{"dm-0"}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Names({"*", "!ram0"}), (Strings{"loop0", "sda", "sdb"}));
}

TEST(ParseDiskStat, ReadsSectorsAsBytes) {
  auto stat = ParseDiskStat("  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n");
  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_EQ(stat->read_ios, 1);
  EXPECT_EQ(stat->read_bytes, 3 * 512);
  EXPECT_EQ(stat->write_ios, 5);
  EXPECT_EQ(stat->write_bytes, 7 * 512);
  EXPECT_EQ(stat->discard_ios, 12);
  EXPECT_EQ(stat->discard_bytes, 14 * 512);
}

TEST(ParseDiskStat, OldKernelsHaveNoDiscards) {
  auto stat = ParseDiskStat("1 2 3 4 5 6 7 8 9 10 11");
  ASSERT_TRUE(stat.ok());
  EXPECT_EQ(stat->discard_bytes, 0);
  EXPECT_FALSE(ParseDiskStat("1 2 3").ok());
  EXPECT_FALSE(ParseDiskStat("1 2 x 4 5 6 7 8 9 10 11").ok());
}

}  // namespace
}  // namespace fleetblame::agent
