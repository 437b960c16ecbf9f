// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/loop_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fleetblame::agent {
namespace {

class LoopFilesTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path at = root_ / path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / "fleetblame-loops";
};

TEST_F(LoopFilesTest, WhatIsNoLoopDeviceOrCannotBeAskedHasNoFile) {
  Put("block/sda/ro", "0\n");
  Put("block/loop7/loop/backing_file", "/images/a\n");
  Put("block/loop7/ro", "0\n");
  Put("dev/loop7", "a plain file, which takes no ioctl");
  LoopFiles files(root_ / "block", root_ / "dev");
  EXPECT_FALSE(files.Of("sda").has_value());
  EXPECT_FALSE(files.Of("loop8").has_value());
  EXPECT_FALSE(files.Of("loop7").has_value());
  std::filesystem::remove_all(root_);
}

}  // namespace
}  // namespace fleetblame::agent
