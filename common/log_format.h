// SPDX-License-Identifier: Apache-2.0
//
// What one log line looks like: logfmt ("ts=… level=info msg=… key=value") or
// one JSON object a line. Pure functions; safe from any thread. A value of any
// bytes (a task's comm, a path) yields one line of printable text.
#ifndef COMMON_LOG_FORMAT_H_
#define COMMON_LOG_FORMAT_H_

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fleetblame {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kLogfmt, kJson };

// Accepts what the flags and configuration files accept: debug, info, warning
// (or warn), error; logfmt, json. Anything else is InvalidArgument.
absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text);
absl::StatusOr<LogFormat> ParseLogFormat(std::string_view text);

// One key=value pair. The key is a string literal in snake_case, with its unit
// at the end (`_ns`, `_bytes`); the value is copied.
struct LogField {
  using Value = std::variant<std::string, int64_t, uint64_t, double, bool>;

  template <typename T>
  requires std::convertible_to<T, std::string_view> LogField(std::string_view key, const T& value)
      : key(key), value(std::string(std::string_view(value))) {}
  template <std::signed_integral T>
  LogField(std::string_view key, T value) : key(key), value(static_cast<int64_t>(value)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) LogField(std::string_view key, T value)
      : key(key), value(static_cast<uint64_t>(value)) {}
  template <std::same_as<bool> T>
  LogField(std::string_view key, T value) : key(key), value(value) {}
  template <std::floating_point T>
  LogField(std::string_view key, T value) : key(key), value(static_cast<double>(value)) {}
  LogField(std::string_view key, const absl::Status& status)
      : key(key), value(std::string(status.ToString())) {}
  LogField(std::string_view key, absl::Duration duration)
      : key(key), value(absl::FormatDuration(duration)) {}

  std::string_view key;
  Value value;
};

struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  // InfinitePast leaves the time out, for readers that stamp lines themselves.
  absl::Time time = absl::InfinitePast();
  std::string_view message;
  std::span<const LogField> fields;
};

// A string value longer than this many bytes is cut and ends in "...".
inline constexpr size_t kMaxLogValueBytes = 4096;

// One line, without the newline.
std::string FormatLogLine(LogFormat format, const LogRecord& record);

}  // namespace fleetblame

#endif  // COMMON_LOG_FORMAT_H_
