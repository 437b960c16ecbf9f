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

TEST(ParseErrorTest, LeavesOtherMessagesAlone) {
  EXPECT_EQ(ParseErrorSentence("--limit: Value 0 not in range"), "--limit: Value 0 not in range");
}

}  // namespace
}  // namespace fleetblame
