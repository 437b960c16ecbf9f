// SPDX-License-Identifier: Apache-2.0
#include "common/grpc_log.h"

#include <grpc/support/log.h>

#include <string>
#include <vector>

#include "common/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame {
namespace {

TEST(GrpcLog, GoesThroughOurLog) {
  std::vector<std::string> lines;
  SetLogSinkForTest([&](std::string_view line) { lines.emplace_back(line); });
  RouteGrpcLog();
  gpr_log(GPR_ERROR, "peer %d is odd", 7);
  SetLogSinkForTest(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("level=warning msg=grpc detail=\"peer 7 is odd\""));
}

}  // namespace
}  // namespace fleetblame
