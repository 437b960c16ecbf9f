// SPDX-License-Identifier: Apache-2.0
#include "common/version.h"

#include "gtest/gtest.h"
#include "re2/re2.h"

namespace fleetblame {
namespace {

TEST(Version, IsSemantic) {
  EXPECT_TRUE(RE2::FullMatch(std::string(kVersion), R"(\d+\.\d+\.\d+)")) << kVersion;
}

TEST(Version, LineNamesProgramVersionAndBuild) {
  EXPECT_TRUE(RE2::FullMatch(VersionLine("fleetblame-x"),
                             R"(fleetblame-x \d+\.\d+\.\d+ \(\w+, (gcc|clang) [\d.].*, \w+\))"))
      << VersionLine("fleetblame-x");
}

}  // namespace
}  // namespace fleetblame
