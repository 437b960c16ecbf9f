// SPDX-License-Identifier: Apache-2.0
#include "common/utf8.h"

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

TEST(Utf8Test, KeepsValidText) {
  for (const char* text : {"", "kworker/0:1", "/srv/Größe", "\xE2\x82\xAC", "\xF0\x9F\x90\x98"}) {
    EXPECT_EQ(ToUtf8(text), text);
    EXPECT_TRUE(IsUtf8(text));
  }
}

TEST(Utf8Test, KnowsWhatIsNoUtf8) {
  for (const char* bytes : {"a\xFF", "\xC0\x80", "\xE2\x82", "\xED\xA0\x80"}) {
    EXPECT_FALSE(IsUtf8(bytes));
  }
}

TEST(Utf8Test, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(ToUtf8("a\xFF"
                   "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(ToUtf8("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");          // overlong
  EXPECT_EQ(ToUtf8("\xED\xA0\x80").find('\xED'), std::string::npos);  // surrogate
  EXPECT_EQ(ToUtf8("cut \xE2\x82"), "cut \xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(ToUtf8("\xF5\x80\x80\x80").find('\xF5'), std::string::npos);
}

TEST(Utf8Test, EveryPairOfBytesBecomesValid) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string bytes = {static_cast<char>(a), static_cast<char>(b)};
      const std::string once = ToUtf8(bytes);
      EXPECT_EQ(ToUtf8(once), once);
    }
  }
}

TEST(Utf8Test, CutsPathsInFront) {
  EXPECT_EQ(ToUtf8Path("/a/b/c", 10), "/a/b/c");
  EXPECT_EQ(ToUtf8Path("/first/second/third", 12), "…/third");
  const std::string cut = ToUtf8Path(std::string(50, 'x') + "ééééé", 14);
  EXPECT_LE(cut.size(), 14u);
  EXPECT_EQ(ToUtf8(cut), cut);
}

}  // namespace
}  // namespace fleetblame
