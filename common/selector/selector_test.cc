// SPDX-License-Identifier: Apache-2.0
#include "common/selector/selector.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame {
namespace {

using ::testing::HasSubstr;
using Labels = std::map<std::string, std::string>;

Selector Must(std::string_view text) {
  absl::StatusOr<Selector> s = Selector::Parse(text);
  EXPECT_TRUE(s.ok()) << text << ": " << s.status();
  return s.ok() ? *s : Selector();
}

std::string ErrorOf(std::string_view text) {
  absl::StatusOr<Selector> s = Selector::Parse(text);
  EXPECT_FALSE(s.ok()) << text;
  if (s.ok()) return "";
  EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(s.status().message());
}

TEST(SelectorTest, EmptyMatchesEverything) {
  for (std::string_view text : {"", "  ", "{}", " { } "}) {
    Selector s = Must(text);
    EXPECT_TRUE(s.empty()) << text;
    EXPECT_TRUE(s.Matches(Labels{}));
    EXPECT_TRUE(s.Matches(Labels{{"a", "b"}}));
  }
}

TEST(SelectorTest, FourOperators) {
  Labels db = {{"role", "db"}, {"dc", "fra1"}};
  EXPECT_TRUE(Must("{role=\"db\"}").Matches(db));
  EXPECT_FALSE(Must("{role=\"web\"}").Matches(db));
  EXPECT_FALSE(Must("{role!=\"db\"}").Matches(db));
  EXPECT_TRUE(Must("{role!=\"web\"}").Matches(db));
  EXPECT_TRUE(Must("{dc=~\"fra.*\"}").Matches(db));
  EXPECT_FALSE(Must("{dc!~\"fra.*\"}").Matches(db));
  EXPECT_TRUE(Must("{role=\"db\",dc=~\"fra.*\",x!=\"y\",z!~\"...\"}").Matches(db));
}

TEST(SelectorTest, RegexMatchesTheWholeValue) {
  EXPECT_FALSE(Must("dc=~\"fra\"").Matches(Labels{{"dc", "fra1"}}));
  EXPECT_FALSE(Must("dc=~\"ra1\"").Matches(Labels{{"dc", "fra1"}}));
  // An alternation must not loosen the anchors.
  EXPECT_FALSE(Must("dc=~\"fra|ams\"").Matches(Labels{{"dc", "fra1"}}));
  EXPECT_TRUE(Must("dc=~\"fra1|ams\"").Matches(Labels{{"dc", "fra1"}}));
  EXPECT_TRUE(Must("dc=~\"a.b\"").Matches(Labels{{"dc", "a\nb"}}));
}

TEST(SelectorTest, AbsentLabelIsEmpty) {
  Labels none;
  EXPECT_TRUE(Must("x=\"\"").Matches(none));
  EXPECT_FALSE(Must("x!=\"\"").Matches(none));
  EXPECT_TRUE(Must("x=~\".*\"").Matches(none));
  EXPECT_FALSE(Must("x=~\".+\"").Matches(none));
  EXPECT_TRUE(Must("x!~\".+\"").Matches(none));
}

TEST(SelectorTest, BracesSpacesCommasAndQuotes) {
  Labels l = {{"a", "1"}, {"b", "x\"y"}, {"c", "\\d"}, {"k8s.io/zone", "z"}};
  EXPECT_TRUE(Must("a=\"1\"").Matches(l));
  EXPECT_TRUE(Must(" a = '1' , ").Matches(l));
  EXPECT_TRUE(Must("{ a=`1` ,\n b = \"x\\\"y\" , }").Matches(l));
  EXPECT_TRUE(Must("c=`\\d`").Matches(l));
  EXPECT_TRUE(Must("c=\"\\\\d\"").Matches(l));
  EXPECT_TRUE(Must("a=~`\\d`").Matches(l));
  EXPECT_TRUE(Must("a=\"\\x31\"").Matches(l));
  EXPECT_TRUE(Must("{\"k8s.io/zone\"=\"z\"}").Matches(l));
}

TEST(SelectorTest, HostIsIdOrName) {
  Labels labels = {{"host", "hidden"}, {"kernel", "hidden"}};
  SelectorTarget t{"id-1", "web1", "6.1.0-13-amd64", &labels};
  EXPECT_TRUE(Must("host=\"web1\"").Matches(t));
  EXPECT_TRUE(Must("host=\"id-1\"").Matches(t));
  EXPECT_FALSE(Must("host=\"hidden\"").Matches(t));
  EXPECT_FALSE(Must("host!=\"web1\"").Matches(t));
  EXPECT_FALSE(Must("host!=\"id-1\"").Matches(t));
  EXPECT_TRUE(Must("host!=\"web2\"").Matches(t));
  EXPECT_TRUE(Must("host=~\"web[12]\"").Matches(t));
  EXPECT_FALSE(Must("host!~\"id.*\"").Matches(t));
  EXPECT_TRUE(Must("kernel=~\"6\\\\.1\\\\..*\"").Matches(t));
  EXPECT_FALSE(Must("kernel!~\"6.*\"").Matches(t));
  EXPECT_TRUE(Must("host=\"web1\"").Matches(SelectorTarget{"id-1", "web1", "", nullptr}));
}

TEST(SelectorTest, ErrorsSayWhereAndHow) {
  EXPECT_THAT(ErrorOf("web1"), HasSubstr("host=\"web1\""));
  EXPECT_THAT(ErrorOf("{role}"), HasSubstr("position 6"));
  EXPECT_THAT(ErrorOf("{role=db}"), HasSubstr("must stand in quotes at position 7"));
  EXPECT_THAT(ErrorOf("{role==\"db\"}"), HasSubstr("not =="));
  EXPECT_THAT(ErrorOf("{role=\"db\""), HasSubstr("closing } is missing"));
  EXPECT_THAT(ErrorOf("{role=\"db}"), HasSubstr("closing \" is missing at position 7"));
  EXPECT_THAT(ErrorOf("role=\"db\"}"), HasSubstr("expected , between"));
  EXPECT_THAT(ErrorOf("{role=\"db\"} x"), HasSubstr("nothing may follow"));
  EXPECT_THAT(ErrorOf("{a=\"1\" b=\"2\"}"), HasSubstr("expected , or }"));
  EXPECT_THAT(ErrorOf("{,}"), HasSubstr("label name"));
  EXPECT_THAT(ErrorOf("{a=\"1\",,}"), HasSubstr("label name"));
  EXPECT_THAT(ErrorOf("{\"\"=\"1\"}"), HasSubstr("may not be empty"));
  EXPECT_THAT(ErrorOf("a=~\"(\""), HasSubstr("bad regular expression for a"));
  EXPECT_THAT(ErrorOf("a=~\"\\d\""), HasSubstr("unknown escape \\d"));
  EXPECT_THAT(ErrorOf("a=\"\\x1\""), HasSubstr("hexadecimal"));
  EXPECT_THAT(ErrorOf("a=\"\\"), HasSubstr("backslash"));
}

TEST(SelectorTest, BoundsOnSize) {
  EXPECT_THAT(ErrorOf(std::string(kMaxSelectorBytes + 1, ' ')), HasSubstr("at most"));
  std::string many;
  for (size_t i = 0; i < kMaxSelectorMatchers + 1; ++i) many += "a=\"1\",";
  EXPECT_THAT(ErrorOf(many), HasSubstr("matchers"));
  EXPECT_THAT(ErrorOf("a=~\"" + std::string(kMaxSelectorRegexBytes + 1, 'x') + "\""),
              HasSubstr("regular expression"));
  // Short to write, huge to compile.
  EXPECT_THAT(ErrorOf("a=~\"((x{100}){100}){100}\""), HasSubstr("regular expression"));
}

TEST(SelectorTest, ToStringParsesBack) {
  for (std::string_view text :
       {"{a=\"1\"}", "a=~'x.*',b!=\"\\\"q\\\\\\n\"", "{\"x y\"!~`z`}", ""}) {
    Selector once = Must(text);
    EXPECT_EQ(Must(once.ToString()).ToString(), once.ToString());
  }
  EXPECT_EQ(Must(" a = '1' , b!~`c`").ToString(), "{a=\"1\",b!~\"c\"}");
}

// Whatever bytes come in, Parse answers, and what it takes can be printed and parsed again.
TEST(SelectorTest, RandomBytes) {
  std::mt19937 rng(7);
  const std::string_view alphabet = "{}ab=!~\"'`\\,x1 .*(|)[\n\xff";
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (size_t n = rng() % 24; n > 0; --n) text += alphabet[rng() % alphabet.size()];
    absl::StatusOr<Selector> s = Selector::Parse(text);
    if (!s.ok()) {
      ASSERT_THAT(std::string(s.status().message()), HasSubstr("selector"));
      continue;
    }
    s->Matches(Labels{{"a", "b"}});
    ASSERT_EQ(Must(s->ToString()).ToString(), s->ToString()) << text;
  }
}

}  // namespace
}  // namespace fleetblame
