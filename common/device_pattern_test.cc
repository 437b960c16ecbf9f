// SPDX-License-Identifier: Apache-2.0
#include "common/device_pattern.h"

#include <string>

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

TEST(DevicePatternTest, TakesNamesGlobsAndNumbers) {
  for (const char* good : {"sda", "!sda", "nvme*", "sd[a-c]", "sd[!a]", "sd?", "8:0", "!8:0", "*",
                           "cciss!c0d0", "dm-0", "[]x]a"}) {
    EXPECT_TRUE(CheckDevicePattern(good).ok()) << good;
  }
}

TEST(DevicePatternTest, RefusesWhatMatchesNoDisk) {
  for (const std::string& bad :
       {std::string(), std::string("!"), std::string("!!"), std::string("!!sda"),
        std::string("/dev/sda"), std::string("a b"), std::string("a\nb"), std::string("\xff"),
        std::string("["), std::string("sd[a"), std::string("sd[]"), std::string(300, 'x')}) {
    const absl::Status status = CheckDevicePattern(bad);
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_LT(status.message().size(), 500u);
  }
}

}  // namespace
}  // namespace fleetblame
