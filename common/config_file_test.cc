// SPDX-License-Identifier: Apache-2.0
#include "common/config_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

std::string Scratch(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  return std::string(base != nullptr ? base : "/tmp") + "/" + name;
}

TEST(ConfigFileTest, ARegularFileIsTaken) {
  const std::string path = Scratch("plain.toml");
  std::ofstream(path) << "a = 1\n";
  EXPECT_EQ(CheckConfigFile(path), "");
}

TEST(ConfigFileTest, WhatHasNoEndIsNot) {
  EXPECT_EQ(CheckConfigFile("/dev/zero"), "/dev/zero is not a regular file");
  EXPECT_EQ(CheckConfigFile("/proc"), "/proc is not a regular file");
}

TEST(ConfigFileTest, ALargeFileIsNot) {
  const std::string path = Scratch("large.toml");
  std::ofstream(path) << "";
  std::filesystem::resize_file(path, kMaxConfigFileBytes);
  EXPECT_EQ(CheckConfigFile(path), "");
  std::filesystem::resize_file(path, kMaxConfigFileBytes + 1);
  EXPECT_EQ(CheckConfigFile(path), path + " is larger than 1 MiB");
}

TEST(ConfigFileTest, AMissingFileIsLeftToWhoOpensIt) {
  EXPECT_EQ(CheckConfigFile(Scratch("none.toml")), "");
}

}  // namespace
}  // namespace fleetblame
