// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/kallsyms_line.h"

#include <gtest/gtest.h>

#include <sstream>

namespace fleetblame::agent {
namespace {

TEST(ParseKallsymsLine, ReadsCoreAndModuleSymbols) {
  auto line = ParseKallsymsLine("ffffffff81000000 T _stext");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->address, 0xffffffff81000000u);
  EXPECT_TRUE(line->is_text);
  EXPECT_EQ(line->name, "_stext");
  EXPECT_EQ(line->module, "");
  line = ParseKallsymsLine("ffffffffc0201000 t ext4_fill_super\t[ext4]");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->name, "ext4_fill_super");
  EXPECT_EQ(line->module, "ext4");
}

TEST(ParseKallsymsLine, TellsTextFromData) {
  for (char type : {'t', 'T', 'w', 'W'}) {
    EXPECT_TRUE(ParseKallsymsLine(std::string("1 ") + type + " x")->is_text) << type;
  }
  for (char type : {'d', 'D', 'r', 'B', 'V', 'A'}) {
    EXPECT_FALSE(ParseKallsymsLine(std::string("1 ") + type + " x")->is_text) << type;
  }
}

TEST(ParseKallsymsLine, RefusesWhatMakesNoSense) {
  for (const char* bad :
       {"", " ", "ffffffff81000000", "ffffffff81000000 ", "ffffffff81000000 T",
        "ffffffff81000000 T ", "ffffffff81000000  T x", "xyz T name", "T name",
        "ffffffff81000000ffffffff T too_large", "1 T a\t[", "1 T a\t[]", "1 T a\text4",
        "1 T na\x01me", "1 T a\t[mod", "-1 T a", "0xffffffff81000000 T a"}) {
    EXPECT_FALSE(ParseKallsymsLine(bad).has_value()) << "\"" << bad << "\"";
  }
}

TEST(LineReader, BoundsLongLinesAndNeedsNoFinalNewline) {
  std::istringstream in("one\n" + std::string(100000, 'x') + "\n\nlast");
  LineReader reader(in, 16);
  std::string_view line;
  bool whole = false;
  ASSERT_TRUE(reader.Next(&line, &whole));
  EXPECT_EQ(line, "one");
  EXPECT_TRUE(whole);
  ASSERT_TRUE(reader.Next(&line, &whole));
  EXPECT_EQ(line, std::string(16, 'x'));
  EXPECT_FALSE(whole);
  ASSERT_TRUE(reader.Next(&line, &whole));
  EXPECT_EQ(line, "");
  EXPECT_TRUE(whole);
  ASSERT_TRUE(reader.Next(&line, &whole));
  EXPECT_EQ(line, "last");
  EXPECT_FALSE(reader.Next(&line, &whole));
  EXPECT_FALSE(reader.Next(&line, &whole));
}

}  // namespace
}  // namespace fleetblame::agent
