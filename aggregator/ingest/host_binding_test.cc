// SPDX-License-Identifier: Apache-2.0
//
// The rules; that a real certificate's names arrive is in server/host_binding_test.cc.
#include "aggregator/ingest/host_binding.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

constexpr char kId[] = "0123456789abcdef0123456789abcdef";

TEST(HostBinding, TheHostIdIsEnough) {
  EXPECT_TRUE(CheckHostBinding({kId}, kId, "anything", "something else").ok());
  EXPECT_TRUE(CheckHostBinding({"x", kId}, kId, "", "").ok());
}

TEST(HostBinding, TheHostnameIsEnoughForANewHostAndForItself) {
  EXPECT_TRUE(CheckHostBinding({"db-1.example"}, kId, "db-1.example", "").ok());
  EXPECT_TRUE(CheckHostBinding({"db-1.example"}, kId, "DB-1.Example", "db-1.example").ok());
}

TEST(HostBinding, AnotherHostsCertificateIsDenied) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, {"fleetblame-client"}, {"db-1"}, {"db-1.example.org"}, {""}}) {
    absl::Status status = CheckHostBinding(names, kId, "db-1.example", "");
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), "db-1.example")) << status;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(CheckHostBinding({"", "x"}, kId, "", "")));
}

TEST(HostBinding, OnesOwnNameDoesNotOpenTheIdOfAnother) {
  absl::Status status = CheckHostBinding({"evil.example"}, kId, "evil.example", "db-1.example");
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), "known as db-1.example")) << status;
}

TEST(HostBinding, ARenamedHostNeedsBothNamesOrItsId) {
  EXPECT_TRUE(
      CheckHostBinding({"new.example", "old.example"}, kId, "new.example", "old.example").ok());
  EXPECT_TRUE(CheckHostBinding({kId}, kId, "new.example", "old.example").ok());
}

}  // namespace
}  // namespace fleetblame::aggregator
