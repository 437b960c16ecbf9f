// SPDX-License-Identifier: Apache-2.0
#include "common/log_format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace fleetblame {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string Logfmt(std::initializer_list<LogField> fields) {
  return FormatLogLine(LogFormat::kLogfmt,
                       {.message = "hello", .fields = {fields.begin(), fields.size()}});
}

nlohmann::json Json(std::initializer_list<LogField> fields) {
  return nlohmann::json::parse(FormatLogLine(
      LogFormat::kJson, {.message = "hello", .fields = {fields.begin(), fields.size()}}));
}

TEST(LogFormat, BareValuesStayBare) {
  EXPECT_EQ(Logfmt({{"n", 3}, {"device", "sda1"}, {"ok", true}, {"ratio", 0.5}}),
            "level=info msg=hello n=3 device=sda1 ok=true ratio=0.5");
}

TEST(LogFormat, ExtremeNumbersKeepEveryDigit) {
  EXPECT_THAT(Logfmt({{"a", INT64_MIN}, {"b", UINT64_MAX}}),
              EndsWith("a=-9223372036854775808 b=18446744073709551615"));
  EXPECT_EQ(Json({{"b", UINT64_MAX}})["b"], UINT64_MAX);
}

TEST(LogFormat, QuotesWhatAReaderWouldSplit) {
  EXPECT_THAT(Logfmt({{"a", ""}, {"b", "x y"}, {"c", "k=v"}, {"d", "say \"hi\""}, {"e", "a\\b"}}),
              EndsWith(R"(a="" b="x y" c="k=v" d="say \"hi\"" e="a\\b")"));
}

TEST(LogFormat, HostileBytesCannotStartANewLine) {
  const std::string hostile("a\nlevel=error\x1b[31m\0z", 20);
  const std::string line = Logfmt({{"comm", hostile}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(line.find('\0'), std::string::npos);
  EXPECT_EQ(Json({{"comm", hostile}})["comm"], hostile);
}

TEST(LogFormat, JsonStaysValidWhateverTheBytes) {
  EXPECT_EQ(Json({{"comm", "\xff\xfe"}})["comm"], "\uFFFD\uFFFD");
}

TEST(LogFormat, LongValuesAreCut) {
  const std::string line = Logfmt({{"path", std::string(3 * kMaxLogValueBytes, 'x')}});
  EXPECT_LT(line.size(), kMaxLogValueBytes + 100);
  EXPECT_THAT(line, EndsWith("x..."));
}

TEST(LogFormat, StatusAndDurationReadNaturally) {
  EXPECT_THAT(Logfmt({{"error", absl::NotFoundError("open /x: gone")}}),
              HasSubstr(R"(error="NOT_FOUND: open /x: gone")"));
  EXPECT_THAT(Logfmt({{"after", absl::Milliseconds(1500)}}), EndsWith("after=1.5s"));
}

TEST(LogFormat, TimeIsUtcWithMicroseconds) {
  const LogRecord record{
      .level = LogLevel::kError, .time = absl::FromUnixMicros(1'000'001), .message = "x"};
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, record),
            "ts=1970-01-01T00:00:01.000001Z level=error msg=x");
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, record),
            R"({"ts":"1970-01-01T00:00:01.000001Z","level":"error","msg":"x"})");
}

TEST(LogFormat, ParsesNames) {
  EXPECT_EQ(*ParseLogLevel("warn"), LogLevel::kWarning);
  EXPECT_EQ(*ParseLogFormat("json"), LogFormat::kJson);
  EXPECT_THAT(ParseLogLevel("loud").status().message(), HasSubstr("\"loud\""));
  EXPECT_THAT(ParseLogFormat("xml").status().message(), HasSubstr("use logfmt or json"));
}

}  // namespace
}  // namespace fleetblame
