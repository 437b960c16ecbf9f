// SPDX-License-Identifier: Apache-2.0
#include "cli/names.h"

#include <gtest/gtest.h>

namespace fleetblame::cli {
namespace {

// Whatever the API can express, a person can type and read: holds for values added later too.
TEST(Names, CoverEveryValueAndRoundTrip) {
  for (int v = v1::Operation_MIN + 1; v <= v1::Operation_MAX; ++v) {
    auto value = static_cast<v1::Operation>(v);
    EXPECT_EQ(*ParseOperation(OperationName(value)), value);
  }
  for (int v = v1::Confidence_MIN + 1; v <= v1::Confidence_MAX; ++v) {
    auto value = static_cast<v1::Confidence>(v);
    EXPECT_EQ(*ParseConfidence(ConfidenceName(value)), value);
  }
  for (int v = v1::Dimension_MIN + 1; v <= v1::Dimension_MAX; ++v) {
    auto value = static_cast<v1::Dimension>(v);
    EXPECT_EQ(*ParseDimension(DimensionName(value)), value);
  }
}

TEST(Names, ErrorsListTheWords) {
  EXPECT_EQ(ParseOrder("size").status().message(),
            "'size' is no order; there are: bytes, ios, wait, io, written, read");
  EXPECT_FALSE(ParseDimension("").ok());
}

}  // namespace
}  // namespace fleetblame::cli
