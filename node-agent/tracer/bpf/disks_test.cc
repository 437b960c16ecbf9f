// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/disks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace fleetblame::agent {
namespace {

std::vector<Disk> SomeDisks() {
  return {{.name = "dm-0", .number = {253, 0}, .bios = true, .lower = {"sda"}},
          {.name = "loop0", .number = {7, 0}},
          {.name = "ram0", .number = {1, 0}},
          {.name = "sda", .number = {8, 0}},
          {.name = "sdb", .number = {8, 16}},
          {.name = "zram0", .number = {252, 0}, .bios = true}};
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

TEST(SelectDisks, EmptyMeansAllButRamDisks) {
  EXPECT_EQ(Names({}), (Strings{"dm-0", "loop0", "sda", "sdb"}));
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

TEST(SelectDisks, RamDisksWhenAskedFor) {
  EXPECT_EQ(Names({"zram0", "dm-*"}), (Strings{"dm-0", "zram0"}));
}

// A /sys/block as far as it matters here.
class ListDisksTest : public ::testing::Test {
 protected:
  ListDisksTest() : root_(::testing::TempDir() + "/sys-block") {
    std::filesystem::remove_all(root_);
  }
  ~ListDisksTest() override { std::filesystem::remove_all(root_); }
  void Add(const std::string& name, const std::string& number, bool requests) {
    std::filesystem::create_directories(root_ / name / "slaves");
    std::filesystem::create_directories(root_ / name / "holders");
    std::ofstream(root_ / name / "dev") << number << "\n";
    if (requests) std::filesystem::create_directories(root_ / name / "mq");
  }
  void Stack(const std::string& upper, const std::string& lower) {
    std::filesystem::create_directory_symlink(root_ / lower, root_ / upper / "slaves" / lower);
    std::filesystem::create_directory_symlink(root_ / upper, root_ / lower / "holders" / upper);
  }
  std::map<std::string, Disk> List() {
    std::map<std::string, Disk> disks;
    for (Disk& disk : ListDisks(root_.string())) disks[disk.name] = disk;
    return disks;
  }
  const std::filesystem::path root_;
};

TEST_F(ListDisksTest, KnowsWhatIsStackedOnWhat) {
  Add("sda", "8:0", true);
  Add("sdb", "8:16", true);
  Add("md0", "9:0", false);
  Add("dm-0", "253:0", false);
  Add("dm-1", "253:1", false);
  Stack("md0", "sda");
  Stack("md0", "sdb");
  Stack("dm-0", "md0");
  Stack("dm-1", "md0");
  std::filesystem::create_directories(root_ / "md0" / "md");
  std::ofstream(root_ / "md0" / "md" / "level") << "raid5\n";
  auto disks = List();
  ASSERT_EQ(disks.size(), 5);
  EXPECT_FALSE(disks["sda"].bios);
  EXPECT_TRUE(disks["sda"].lower.empty());
  EXPECT_EQ(disks["sda"].holders, (Strings{"md0"}));
  EXPECT_TRUE(disks["md0"].bios);
  EXPECT_TRUE(disks["md0"].parity);
  EXPECT_EQ(disks["md0"].lower, (Strings{"sda", "sdb"}));
  EXPECT_EQ(disks["md0"].holders, (Strings{"dm-0", "dm-1"}));
  EXPECT_EQ(disks["dm-1"].lower, (Strings{"md0"}));
  EXPECT_FALSE(disks["dm-1"].parity);
}

TEST(TopMostAbove, FollowsTheChainUntilItForks) {
  const std::vector<Disk> disks = {
      {.name = "sda", .number = {8, 0}, .holders = {"md0"}},
      {.name = "md0", .number = {9, 0}, .bios = true, .holders = {"dm-0"}},
      {.name = "dm-0", .number = {253, 0}, .bios = true},
      {.name = "sdb", .number = {8, 16}, .holders = {"dm-1", "dm-2"}},
      {.name = "dm-1", .number = {253, 1}, .bios = true},
      {.name = "dm-2", .number = {253, 2}, .bios = true},
      {.name = "sdc", .number = {8, 32}, .holders = {"dm-9"}}};
  EXPECT_EQ(TopMostAbove(disks[0], disks), (DeviceNumber{253, 0}));
  EXPECT_EQ(TopMostAbove(disks[1], disks), (DeviceNumber{253, 0}));
  EXPECT_EQ(TopMostAbove(disks[2], disks), DeviceNumber{});
  EXPECT_EQ(TopMostAbove(disks[3], disks), (DeviceNumber{8, 16})) << "one of two, not known which";
  EXPECT_EQ(TopMostAbove(disks[6], disks), DeviceNumber{}) << "the one above is not watched";
}

TEST(WritersOf, AreThoseOfTheDeviceThatMakesItsDriverWrite) {
  // LVM's origin dm-3 and its snapshot dm-2, over the volume dm-0 and what the snapshot keeps,
  // dm-1; a RAID 5 below the first; a volume of its own beside it.
  const std::vector<Disk> disks = {
      {.name = "dm-0",
       .number = {253, 0},
       .bios = true,
       .lower = {"md0"},
       .holders = {"dm-2", "dm-3"}},
      {.name = "dm-1", .number = {253, 1}, .bios = true, .lower = {"sdc"}, .holders = {"dm-2"}},
      {.name = "dm-2", .number = {253, 2}, .bios = true, .lower = {"dm-0", "dm-1"}},
      {.name = "dm-3", .number = {253, 3}, .bios = true, .lower = {"dm-0"}},
      {.name = "dm-4", .number = {253, 4}, .bios = true, .lower = {"sdd"}},
      {.name = "md0",
       .number = {9, 0},
       .bios = true,
       .lower = {"sda"},
       .holders = {"dm-0"},
       .parity = true},
      {.name = "sda", .number = {8, 0}, .holders = {"md0"}},
      {.name = "sdc", .number = {8, 32}, .holders = {"dm-1"}},
      {.name = "sdd", .number = {8, 48}, .holders = {"dm-4"}}};
  auto of = [&](const std::string& name, bool wants_note) {
    for (const Disk& disk : disks) {
      if (disk.name != name) continue;
      bool noted = false;
      const DeviceNumber writers = WritersOf(disk, disks, &noted);
      EXPECT_EQ(noted, wants_note) << name;
      return writers;
    }
    return DeviceNumber{};
  };
  const DeviceNumber volume{253, 0}, raid{9, 0}, nobody{};
  EXPECT_EQ(of("dm-3", true), volume) << "the origin";
  EXPECT_EQ(of("dm-2", true), volume);
  EXPECT_EQ(of("dm-1", false), volume) << "old blocks for the snapshot";
  EXPECT_EQ(of("sdc", false), volume) << "the same, on the disk";
  EXPECT_EQ(of("dm-0", true), raid);
  EXPECT_EQ(of("md0", true), raid);
  EXPECT_EQ(of("sda", false), raid) << "parity";
  EXPECT_EQ(of("dm-4", false), nobody);
  EXPECT_EQ(of("sdd", false), nobody);
}

TEST_F(ListDisksTest, HeadOfAMultipathNamespace) {
  Add("nvme0n1", "259:0", false);
  Add("nvme0c0n1", "259:1", true);
  Add("nvme0c1n1", "259:2", true);
  Add("nvme0n2", "259:3", true);
  // Paths have no numbers.
  for (const char* path : {"nvme0c0n1", "nvme0c1n1"}) std::filesystem::remove(root_ / path / "dev");
  auto disks = List();
  EXPECT_EQ(disks.size(), 2);
  EXPECT_TRUE(disks["nvme0n1"].head);
  EXPECT_FALSE(disks["nvme0n1"].bios) << "its IOs become requests";
  EXPECT_FALSE(disks["nvme0n2"].head);
  EXPECT_FALSE(disks["nvme0n2"].bios);
  EXPECT_EQ(PathsOfHead("nvme0n1", root_.string()), (Strings{"nvme0c0n1", "nvme0c1n1"}));
  EXPECT_EQ(PathsOfHead("nvme0n2", root_.string()), Strings{});
  EXPECT_EQ(PathsOfHead("sda", root_.string()), Strings{});
  EXPECT_FALSE(HeadIsCounted("nvme0n1", root_.string()));
  std::filesystem::create_directories(root_ / "nvme0n1" / "queue");
  std::ofstream(root_ / "nvme0n1" / "queue" / "iostats") << "0\n";
  EXPECT_FALSE(HeadIsCounted("nvme0n1", root_.string()));
  std::ofstream(root_ / "nvme0n1" / "queue" / "iostats") << "1\n";
  EXPECT_TRUE(HeadIsCounted("nvme0n1", root_.string()));
}

TEST(PathSums, AddUpPathsAlsoThoseThatAreGone) {
  PathSums sums;
  EXPECT_EQ(sums.Add({}), DiskStat{});
  EXPECT_EQ(sums.Add({{"a", {.write_ios = 1, .write_bytes = 10}}, {"b", {.write_bytes = 5}}}),
            (DiskStat{.write_ios = 1, .write_bytes = 15}));
  EXPECT_EQ(sums.Add({{"b", {.read_bytes = 2, .write_bytes = 6}}}),
            (DiskStat{.read_bytes = 2, .write_ios = 1, .write_bytes = 16}))
      << "a is gone";
  EXPECT_EQ(sums.Add({{"a", {.write_bytes = 3}}, {"b", {.read_bytes = 2, .write_bytes = 6}}}),
            (DiskStat{.read_bytes = 2, .write_ios = 1, .write_bytes = 19}))
      << "it is back, and began anew";
  EXPECT_EQ(sums.Add({{"a", {.write_bytes = 1}}, {"b", {.read_bytes = 2, .write_bytes = 6}}}),
            (DiskStat{.read_bytes = 2, .write_ios = 1, .write_bytes = 20}))
      << "the same between two looks";
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
