// SPDX-License-Identifier: Apache-2.0
#include "cli/filter_flags.h"

#include <gtest/gtest.h>

namespace fleetblame::cli {
namespace {

TEST(FilterFlags, FillTheRequest) {
  CLI::App app;
  FilterFlags flags;
  AddFilterFlags(&app, &flags);
  std::vector<std::string> arguments = {"sda,sdb",  "--device",     "write", "--op",
                                        "--issuer", "comm, intent", "--by"};
  app.parse(arguments);  // CLI11 wants them reversed
  v1::TopRequest request;
  ASSERT_TRUE(Apply(flags, &request).ok());
  EXPECT_EQ(request.side(), v1::SIDE_ISSUER);
  ASSERT_EQ(request.by_size(), 2);
  EXPECT_EQ(request.by(0), v1::DIMENSION_COMM);
  EXPECT_EQ(request.by(1), v1::DIMENSION_INTENT);
  ASSERT_EQ(request.filter().devices_size(), 2);
  EXPECT_EQ(request.filter().operations(0), v1::OPERATION_WRITE);
}

TEST(FilterFlags, ErrorsNameTheFlag) {
  v1::TopRequest request;
  FilterFlags flags;
  flags.by = "comm,size";
  EXPECT_EQ(Apply(flags, &request).message().find("--by: 'size'"), 0u);
  flags.by = "comm,comm";
  EXPECT_FALSE(Apply(flags, &request).ok());
  flags.by = "";
  flags.order = "x";
  EXPECT_EQ(Apply(flags, &request).message().find("--order: "), 0u);
  flags.order = "ios";
  flags.operations = {"erase"};
  EXPECT_EQ(Apply(flags, &request).message().find("--op: "), 0u);
}

TEST(FilterFlags, DirtierAndIssuerExcludeEachOther) {
  CLI::App app;
  FilterFlags flags;
  AddFilterFlags(&app, &flags);
  std::vector<std::string> arguments = {"--issuer", "--dirtier"};
  EXPECT_THROW(app.parse(arguments), CLI::ParseError);
}

}  // namespace
}  // namespace fleetblame::cli
