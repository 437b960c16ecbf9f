// SPDX-License-Identifier: Apache-2.0
#include "common/host_port.h"

#include <string>

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

TEST(HostPortTest, TakesNamesAndAddressesWithAPort) {
  for (const char* good : {"localhost:1", "aggregator.example:7443", "127.0.0.1:65535",
                           "[::1]:7443", "[fe80::1%eth0]:7443", "a_b-c:7443", "größe.example:80"}) {
    EXPECT_TRUE(CheckHostPort(good).ok()) << good;
  }
}

TEST(HostPortTest, RefusesWhatGrpcWouldGuessAt) {
  for (const char* bad : {"",
                          ":",
                          "host",
                          "127.0.0.1",
                          "127.0.0.1:",
                          ":7443",
                          "127.0.0.1:99999",
                          "127.0.0.1:abc",
                          "127.0.0.1:0",
                          "127.0.0.1:-1",
                          "127.0.0.1:+80",
                          "127.0.0.1: 80",
                          " 127.0.0.1:80",
                          "http://host:80",
                          "user@host:80",
                          "::1:80",
                          "[]:80",
                          "[::1]",
                          "\"127.0.0.1:1",
                          "host/path:80",
                          "ipv4:127.0.0.1:80"}) {
    const absl::Status status = CheckHostPort(bad);
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_NE(std::string(status.message()).find("is not an address such as"), std::string::npos);
  }
}

TEST(HostPortTest, PortZeroIsForListeners) {
  EXPECT_TRUE(CheckHostPort("127.0.0.1:0", PortZero::kAllowed).ok());
  EXPECT_FALSE(CheckHostPort("127.0.0.1:", PortZero::kAllowed).ok());
}

}  // namespace
}  // namespace fleetblame
