// SPDX-License-Identifier: Apache-2.0
#include "common/connection_hint.h"

#include <string>

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

// The messages are what gRPC 1.51 says; the tests of agent, command line and aggregator meet them
// in earnest.
TEST(ConnectionHintTest, KnownMessagesHaveAWayOut) {
  const ConnectionHint refused =
      HintFor(false, false,
              "UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: "
              "Connection refused");
  EXPECT_EQ(refused.text, "nothing listens there");
  EXPECT_FALSE(refused.about_tls);
  const ConnectionHint plain = HintFor(true, false,
                                       "Ssl handshake failed: SSL_ERROR_SSL: error:0A00010B:SSL "
                                       "routines::wrong version number");
  EXPECT_TRUE(plain.text.starts_with("the aggregator does not speak TLS there"));
  EXPECT_TRUE(plain.about_tls);
}

TEST(ConnectionHintTest, AClosedConnectionDependsOnWhatWasShown) {
  const std::string closed = "UNAVAILABLE: ipv4:127.0.0.1:7443: Socket closed";
  EXPECT_NE(HintFor(false, false, closed).text.find("give --tls-ca"), std::string::npos);
  EXPECT_NE(HintFor(true, false, closed).text.find("give --tls-cert"), std::string::npos);
  EXPECT_NE(HintFor(true, true, closed).text.find("check --tls-cert"), std::string::npos);
}

TEST(ConnectionHintTest, UnknownMessagesHaveNone) {
  EXPECT_TRUE(HintFor(true, true, "the moon is in the way").text.empty());
}

}  // namespace
}  // namespace fleetblame
