// SPDX-License-Identifier: Apache-2.0
#include "cli/summary_line.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace fleetblame::cli {
namespace {

v1::Summary ThreeHosts() {
  v1::Summary s;
  s.set_start_unix_ns(1'800'000'000'000'000'000);
  s.set_end_unix_ns(1'800'000'600'000'000'000);
  s.set_hosts_matched(3);
  s.set_hosts_with_data(3);
  s.set_written_bytes(4096);
  (*s.mutable_bytes_by_confidence())["exact"] = 4096;
  return s;
}

std::vector<std::string> Lines(const v1::Summary& summary) {
  return absl::StrSplit(SummaryLines(summary, Terminal()), '\n', absl::SkipEmpty());
}

TEST(SummaryLine, OneLineWhenNothingIsMissing) {
  std::vector<std::string> lines = Lines(ThreeHosts());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(absl::StrContains(lines[0], "3 of 3 hosts")) << lines[0];
  EXPECT_TRUE(absl::StrContains(lines[0], "lost 0")) << lines[0];
}

TEST(SummaryLine, ASilentHostIsSaidOnce) {
  v1::Summary s = ThreeHosts();
  s.set_hosts_with_data(2);
  s.add_warnings("1 of 3 matched hosts have no data in this range.");
  std::vector<std::string> lines = Lines(s);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "! 1 of 3 matched hosts have no data in this range.");
}

TEST(SummaryLine, GapsAndClocksAreNamedNotCountedAgain) {
  v1::Summary s = ThreeHosts();
  s.add_warnings("Data is missing: 5 gaps on 1 host.");
  s.set_gaps_total(5);
  for (int i = 0; i < 5; ++i) {
    v1::HostGap* gap = s.add_gaps();
    gap->set_hostname("db-1");
    gap->mutable_gap()->set_start_unix_ns(s.start_unix_ns());
    gap->mutable_gap()->set_end_unix_ns(s.start_unix_ns() + 60'000'000'000);
    gap->mutable_gap()->set_cause("spool_full");
  }
  for (const char* host : {"web-1", "web-2", "web-3", "web-4"}) s.add_skewed_hosts(host);
  std::vector<std::string> lines = Lines(s);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(absl::StartsWith(lines[2], "!   gaps: db-1 ")) << lines[2];
  EXPECT_TRUE(absl::StrContains(lines[2], "(spool_full)")) << lines[2];
  EXPECT_TRUE(absl::EndsWith(lines[2], "; 2 more")) << lines[2];
  EXPECT_EQ(lines[3], "!   clocks: web-1, web-2, web-3; 1 more");
}

TEST(SummaryLine, TextsOfOthersCannotPlayWithTheTerminal) {
  v1::Summary s = ThreeHosts();
  s.add_skewed_hosts("evil\x1b[2J");
  EXPECT_FALSE(absl::StrContains(SummaryLines(s, Terminal()), "\x1b"));
}

}  // namespace
}  // namespace fleetblame::cli
