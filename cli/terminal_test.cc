// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <clocale>

namespace fleetblame::cli {
namespace {

class TerminalText : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr); }
};

TEST_F(TerminalText, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("a ← b"), 5);
  EXPECT_EQ(DisplayWidth("µs"), 2);
  EXPECT_EQ(DisplayWidth("日本"), 4);
  EXPECT_EQ(DisplayWidth("\xff\xfe"), 2);
}

TEST_F(TerminalText, TruncateNeverExceedsTheWidthNorCutsACharacter) {
  std::string text = "ext4_da_write_end ← 日本 pwrite64";
  for (int width = 0; width < 40; ++width) {
    std::string cut = Truncate(text, width);
    EXPECT_LE(DisplayWidth(cut), width);
    EXPECT_EQ(Printable(cut), cut);
  }
  EXPECT_EQ(Truncate("short", 5), "short");
  EXPECT_EQ(Truncate("longer", 5), "long…");
}

TEST_F(TerminalText, NothingThatATerminalWouldObeyGetsThrough) {
  EXPECT_EQ(Printable("\x1b[2J\x07\n"), "\\x1b[2J\\x07\\x0a");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI as one C1 control character
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("größe"), "größe");
}

// "sd\u202exyz\u202ca" would look like another disk.
TEST_F(TerminalText, NoNameTurnsTheDirectionOfWriting) {
  EXPECT_EQ(Printable("a\u202e\u2066\u200fb"), "a\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xe2\\x80\\x8fb");
  EXPECT_EQ(Printable("שלום"), "שלום");
  EXPECT_LE(DisplayWidth(Truncate("a\u202eb", 2)), 2);
}

}  // namespace
}  // namespace fleetblame::cli
