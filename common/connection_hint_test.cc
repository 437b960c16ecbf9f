// SPDX-License-Identifier: Apache-2.0
#include "common/connection_hint.h"

#include <string>

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

constexpr std::string_view kAddress = "blame.example:7443";

// The messages are what gRPC 1.51 says; the tests of agent, command line and aggregator meet them
// in earnest.
TEST(ConnectionHintTest, KnownMessagesAreExplained) {
  const ConnectionHint refused =
      HintFor(false, false, kAddress, "UNKNOWN: ipv4:127.0.0.1:1: Connection refused");
  EXPECT_EQ(refused.text, "nothing listens there (UNKNOWN: ipv4:127.0.0.1:1: Connection refused)");
  EXPECT_FALSE(refused.way_out);
  const ConnectionHint plain = HintFor(true, false, kAddress,
                                       "Ssl handshake failed: SSL_ERROR_SSL: error:0A00010B:SSL "
                                       "routines::wrong version number");
  EXPECT_TRUE(plain.text.starts_with("the aggregator does not speak TLS there"));
  EXPECT_TRUE(plain.way_out);
}

TEST(ConnectionHintTest, AClosedConnectionDependsOnWhatWasShown) {
  const std::string closed = "UNAVAILABLE: ipv4:127.0.0.1:7443: Socket closed";
  EXPECT_NE(HintFor(false, false, kAddress, closed).text.find("give --tls-ca"), std::string::npos);
  EXPECT_NE(HintFor(true, false, kAddress, closed).text.find("give --tls-cert"), std::string::npos);
  EXPECT_NE(HintFor(true, true, kAddress, closed).text.find("check --tls-cert"), std::string::npos);
}

TEST(ConnectionHintTest, AnUnknownNameIsSaidWithoutTheResolversWords) {
  const ConnectionHint unknown =
      HintFor(false, false, kAddress,
              "DNS resolution failed for blame.example:7443: C-ares status is not ARES_SUCCESS "
              "qtype=AAAA name=blame.example is_balancer=0: Domain name not found");
  EXPECT_EQ(unknown.text,
            "there is no host of the name blame.example; check --aggregator, or add the name to "
            "DNS or /etc/hosts");
  EXPECT_TRUE(unknown.way_out);
}

TEST(ConnectionHintTest, ServersThatDoNotAnswerAreNoProofOfAWrongName) {
  for (const char* message :
       {"DNS resolution failed for blame.example:7443: C-ares status is not ARES_SUCCESS qtype=A "
        "name=blame.example is_balancer=0: Could not contact DNS servers",
        "DNS resolution failed for blame.example:7443: C-ares status is not ARES_SUCCESS qtype=A "
        "name=blame.example is_balancer=0: Timeout while contacting DNS servers",
        "DNS resolution failed for blame.example:7443: UNKNOWN: Temporary failure in name "
        "resolution"}) {
    const ConnectionHint silent = HintFor(false, false, kAddress, message);
    EXPECT_TRUE(silent.text.starts_with("no DNS server answers, so the address of blame.example"))
        << silent.text;
    EXPECT_TRUE(silent.way_out);
  }
}

TEST(ConnectionHintTest, UnknownMessagesStayAsTheyAre) {
  const ConnectionHint hint = HintFor(true, true, kAddress, "the moon is in the way");
  EXPECT_EQ(hint.text, "the moon is in the way");
  EXPECT_FALSE(hint.way_out);
}

}  // namespace
}  // namespace fleetblame
