// SPDX-License-Identifier: Apache-2.0
#include "common/log_format.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "nlohmann/json.hpp"

namespace fleetblame {
namespace {

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

std::string Timestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

std::string Shortened(std::string_view text) {
  if (text.size() <= kMaxLogValueBytes) return std::string(text);
  return absl::StrCat(ToAbsl(text.substr(0, kMaxLogValueBytes)), "...");
}

// logfmt leaves a value bare when a reader that splits at blanks and at the
// first '=' gets it back unchanged.
bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  return std::any_of(text.begin(), text.end(), [](char c) {
    return !absl::ascii_isgraph(static_cast<unsigned char>(c)) || c == '"' || c == '=' || c == '\\';
  });
}

void AppendLogfmt(std::string_view key, std::string_view text, std::string* line) {
  if (!line->empty()) line->push_back(' ');
  absl::StrAppend(line, ToAbsl(key), "=");
  const std::string value = Shortened(text);
  if (NeedsQuotes(value)) {
    absl::StrAppend(line, "\"", absl::Utf8SafeCHexEscape(value), "\"");
  } else {
    absl::StrAppend(line, value);
  }
}

std::string PlainText(const LogField::Value& value) {
  struct Visitor {
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return absl::StrCat(v); }
    std::string operator()(uint64_t v) const { return absl::StrCat(v); }
    std::string operator()(double v) const { return absl::StrCat(v); }
  };
  return std::visit(Visitor{}, value);
}

std::string FormatLogfmt(const LogRecord& record) {
  std::string line;
  if (record.time != absl::InfinitePast()) AppendLogfmt("ts", Timestamp(record.time), &line);
  AppendLogfmt("level", LevelName(record.level), &line);
  AppendLogfmt("msg", record.message, &line);
  for (const LogField& field : record.fields)
    AppendLogfmt(field.key, PlainText(field.value), &line);
  return line;
}

std::string FormatJson(const LogRecord& record) {
  nlohmann::ordered_json object;
  if (record.time != absl::InfinitePast()) object["ts"] = Timestamp(record.time);
  object["level"] = LevelName(record.level);
  object["msg"] = Shortened(record.message);
  for (const LogField& field : record.fields) {
    auto& slot = object[std::string(field.key)];
    if (const auto* text = std::get_if<std::string>(&field.value)) {
      slot = Shortened(*text);
    } else {
      std::visit([&slot](const auto& v) { slot = v; }, field.value);
    }
  }
  // Bytes that are not UTF-8 become U+FFFD: a log reader needs valid JSON.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning" || text == "warn") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown log level \"", ToAbsl(text), "\"; use debug, info, warning or error"));
}

absl::StatusOr<LogFormat> ParseLogFormat(std::string_view text) {
  if (text == "logfmt") return LogFormat::kLogfmt;
  if (text == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown log format \"", ToAbsl(text), "\"; use logfmt or json"));
}

std::string FormatLogLine(LogFormat format, const LogRecord& record) {
  return format == LogFormat::kJson ? FormatJson(record) : FormatLogfmt(record);
}

}  // namespace fleetblame
