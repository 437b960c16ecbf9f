// SPDX-License-Identifier: Apache-2.0
#include "cli/units.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace fleetblame::cli {
namespace {

// At most three significant digits: 1.53 would pretend more than a table needs.
std::string Short(double value, const char* unit) {
  return value < 9.95 ? absl::StrFormat("%.1f %s", value, unit)
                      : absl::StrFormat("%.0f %s", value, unit);
}

}  // namespace

std::string HumanBytes(double bytes) {
  if (bytes < 1000) return absl::StrFormat("%.0f B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = bytes / 1024;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return Short(value, kUnits[unit]);
}

std::string HumanNs(uint64_t ns) {
  if (ns == 0) return "0";
  if (ns < 1000) return "<1 µs";
  double value = static_cast<double>(ns) / 1e3;
  if (value < 999.5) return Short(value, "µs");
  if (value < 999.5e3) return Short(value / 1e3, "ms");
  return Short(value / 1e6, "s");
}

std::string HumanCount(uint64_t count) {
  std::string digits = absl::StrCat(count);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string HumanPercent(double part, double whole) {
  if (whole <= 0) return "-";
  double percent = 100 * part / whole;
  // Neither "100 %" nor "0 %" may hide a remainder.
  if (part < whole && percent > 99.9) return ">99.9 %";
  if (part > 0 && percent < 0.1) return "<0.1 %";
  return absl::StrFormat(percent == std::floor(percent) ? "%.0f %%" : "%.1f %%", percent);
}

std::string HumanSpan(uint64_t ns) {
  auto seconds = static_cast<uint64_t>(std::llround(static_cast<double>(ns) / 1e9));
  if (seconds < 120) return absl::StrCat(seconds, " s");
  uint64_t minutes = seconds / 60;
  if (minutes < 60)
    return absl::StrCat(minutes, " min", seconds % 60 ? absl::StrCat(" ", seconds % 60, " s") : "");
  uint64_t hours = minutes / 60;
  if (hours < 48)
    return absl::StrCat(hours, " h", minutes % 60 ? absl::StrCat(" ", minutes % 60, " min") : "");
  return absl::StrCat(hours / 24, " d", hours % 24 ? absl::StrCat(" ", hours % 24, " h") : "");
}

std::string HumanTime(uint64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(static_cast<int64_t>(unix_ns)),
                          absl::UTCTimeZone());
}

}  // namespace fleetblame::cli
