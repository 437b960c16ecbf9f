// SPDX-License-Identifier: Apache-2.0
#include "cli/loss_lines.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace fleetblame::cli {
namespace {

using absl::StrContains;

v1::Summary With(std::map<std::string, uint64_t> losses) {
  v1::Summary summary;
  summary.mutable_losses()->insert(losses.begin(), losses.end());
  return summary;
}

TEST(LossLines, NothingWithoutLosses) {
  EXPECT_EQ(LossLines(v1::Summary(), false), "");
  EXPECT_EQ(LossLines(v1::Summary(), true), "");
}

TEST(LossLines, OnlyWhatMattersUnlessAskedForMore) {
  const v1::Summary summary = With({{"rows_nomem", 1200}, {"bio_reused", 33}, {"inode_nomem", 2}});
  const std::string few = LossLines(summary, false);
  EXPECT_TRUE(StrContains(few, "rows_nomem")) << few;
  EXPECT_FALSE(StrContains(few, "bio_reused")) << few;
  EXPECT_TRUE(StrContains(few, "2 counters by which nothing is lost: --verbose")) << few;
  const std::string all = LossLines(summary, true);
  for (const char* name : {"rows_nomem", "bio_reused", "inode_nomem"}) {
    EXPECT_TRUE(StrContains(all, name)) << all;
  }
  EXPECT_FALSE(StrContains(all, "--verbose")) << all;
}

TEST(LossLines, UnknownCountersMatterAndCannotPlayWithTheTerminal) {
  const std::string text = LossLines(With({{"new\x1b[2J", 1}}), false);
  EXPECT_TRUE(StrContains(text, "new")) << text;
  EXPECT_FALSE(StrContains(text, "\x1b")) << text;
}

}  // namespace
}  // namespace fleetblame::cli
