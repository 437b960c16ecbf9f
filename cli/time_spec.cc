// SPDX-License-Identifier: Apache-2.0
#include "cli/time_spec.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame::cli {
namespace {

// absl knows no days or weeks; everything else is left to it.
bool ParseDaysAndRest(std::string_view text, absl::Duration* out) {
  absl::Duration total;
  for (auto [unit, hours] : {std::pair{'w', 168}, std::pair{'d', 24}}) {
    size_t at = text.find(unit);
    if (at == std::string_view::npos) continue;
    int64_t count;
    if (!absl::SimpleAtoi(ToAbsl(text.substr(0, at)), &count) || count < 0 || count > 100'000)
      return false;
    total += absl::Hours(hours) * count;
    text.remove_prefix(at + 1);
  }
  absl::Duration rest;
  if (!text.empty() && !absl::ParseDuration(ToAbsl(text), &rest)) return false;
  *out = total + rest;
  return true;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  if (text.empty() || !ParseDaysAndRest(text, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", ToAbsl(text), "' is not a length of time; write it like 90s, 10m, 2h30m or 7d"));
  }
  return duration;
}

absl::StatusOr<absl::Time> ParseTime(std::string_view text, absl::Time now) {
  if (text == "now") return now;
  if (text.starts_with('@')) {
    int64_t unix_seconds;
    if (absl::SimpleAtoi(ToAbsl(text.substr(1)), &unix_seconds) && unix_seconds >= 0) {
      return absl::FromUnixSeconds(unix_seconds);
    }
  }
  std::string_view ago = text;
  if (ago.starts_with("now-")) ago.remove_prefix(4);
  if (auto duration = ParseDuration(ago); duration.ok()) return now - *duration;
  absl::Time time;
  for (const char* format : {absl::RFC3339_full, "%Y-%m-%d %H:%M:%E*S", "%Y-%m-%dT%H:%M:%E*S",
                             "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    if (absl::ParseTime(format, std::string(text), absl::UTCTimeZone(), &time, nullptr))
      return time;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", ToAbsl(text),
      "' is not a time; write how long ago (10m, 2h, 7d), a UTC time (2026-03-01 14:00, "
      "2026-03-01T14:00:00Z), @unix-seconds or now"));
}

}  // namespace fleetblame::cli
