// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/file_path.h"

#include <gtest/gtest.h>

#include <string>

namespace fleetblame::agent {
namespace {

using std::string_literals::operator""s;

TEST(BuildPath, FromFileToRoot) {
  EXPECT_EQ(BuildPath("log\0var\0"s, true, "/"), "/var/log");
  EXPECT_EQ(BuildPath("log\0var\0"s, true, "/mnt/disk"), "/mnt/disk/var/log");
}

TEST(BuildPath, IncompleteOrUnmountedBeginsWithDots) {
  EXPECT_EQ(BuildPath("log\0var\0"s, false, "/mnt"), "…/var/log");
  EXPECT_EQ(BuildPath("log\0"s, true, ""), "…/log");
}

TEST(BuildPath, NoNamesNoPath) { EXPECT_EQ(BuildPath("", true, "/mnt"), ""); }

TEST(MountTable, ShortestMountOfTheRootCounts) {
  MountTable table;
  table.Parse(
      "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "31 30 8:2 / /srv/long/place rw - xfs /dev/sda2 rw\n"
      "32 30 8:2 / /srv rw - xfs /dev/sda2 rw\n"
      "33 30 8:3 /sub /bind rw - ext4 /dev/sda3 rw\n"
      "34 30 0:40 / /with\\040space rw - btrfs /dev/sdb rw\n"
      "garbage\n");
  EXPECT_EQ(table.MountPoint({8, 1}), "/");
  EXPECT_EQ(table.MountPoint({8, 2}), "/srv");
  EXPECT_EQ(table.MountPoint({8, 3}), "");
  EXPECT_EQ(table.MountPoint({0, 40}), "/with space");
}

}  // namespace
}  // namespace fleetblame::agent
