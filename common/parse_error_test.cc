// SPDX-License-Identifier: Apache-2.0
#include "common/parse_error.h"

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "gtest/gtest.h"

#include <fstream>

namespace fleetblame {
namespace {

// What the library itself says of this file, so that a new version of it is noticed.
std::string SentenceFor(const std::string& content) {
  const std::string path = testing::TempDir() + "/config.toml";
  std::ofstream(path) << content;
  CLI::App app("x", "x");
  int number = 0;
  app.add_option("--number", number);
  app.set_config("--config", "", "TOML");
  app.allow_config_extras(CLI::config_extras_mode::error);
  try {
    app.parse("--config " + path);
  } catch (const CLI::ParseError& error) {
    return ParseErrorSentence(error.what());
  }
  return "no error";
}

TEST(ParseErrorTest, UnknownKeysAndSectionsOfAFile) {
  EXPECT_EQ(SentenceFor("number = 1\n"), "no error");
  EXPECT_NE(SentenceFor("colour = 1\n").find("sets \"colour\", and there is no such setting"),
            std::string::npos);
  EXPECT_NE(SentenceFor("[server]\n").find("a section [server]"), std::string::npos)
      << SentenceFor("[server]\n");
}

TEST(ParseErrorTest, AFileThatIsNotThere) {
  CLI::App app("x", "x");
  app.set_config("--config", "", "TOML");
  try {
    app.parse("--config /nonexistent/file");
    FAIL();
  } catch (const CLI::ParseError& error) {
    EXPECT_EQ(ParseErrorSentence(error.what()),
              "--config: /nonexistent/file is no file that can be read");
  }
}

TEST(ParseErrorTest, ValuesThatAreNoNumberOrNotInRange) {
  for (const char* value : {"abc", "0", "1e3", "11", "a = b", "1.5"}) {
    CLI::App app("x", "x");
    int small = 1;
    app.add_option("--small", small)->check(CLI::Range(1, 10));
    unsigned any = 0;
    app.add_option("--any", any);
    bool flag = false;
    app.add_option("--flag", flag);
    auto said = [&](const std::string& name) -> std::string {
      try {
        app.parse(std::vector<std::string>{value, name});  // the library takes them backwards
      } catch (const CLI::ParseError& error) {
        return ParseErrorSentence(error.what());
      }
      return "no error";
    };
    EXPECT_EQ(said("--small"), std::string("--small: \"") + value + "\" is no number from 1 to 10");
    if (value == std::string("abc")) {
      EXPECT_EQ(said("--any"), "--any: \"abc\" is not a value of the kind that --help names");
      EXPECT_EQ(said("--flag"), "--flag: \"abc\" is not a value of the kind that --help names");
    }
  }
}

TEST(ParseErrorTest, LeavesOtherMessagesAlone) {
  EXPECT_EQ(ParseErrorSentence("--limit: Value 0 not in range"), "--limit: Value 0 not in range");
  EXPECT_EQ(ParseErrorSentence("Could not convert: x"), "Could not convert: x");
}

}  // namespace
}  // namespace fleetblame
