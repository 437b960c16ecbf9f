// SPDX-License-Identifier: Apache-2.0
#include "cli/summary_line.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/names.h"
#include "cli/units.h"
#include "common/saturating.h"

namespace fleetblame::cli {
namespace {

constexpr int kGapsShown = 3;

std::string Blame(const v1::Summary& summary) {
  uint64_t total = 0;
  for (const auto& [name, bytes] : summary.bytes_by_confidence()) Grow(&total, bytes);
  if (total == 0) return "no IO recorded";
  std::vector<std::string> parts;
  for (int c = v1::Confidence_MIN + 1; c <= v1::Confidence_MAX; ++c) {
    std::string name(ConfidenceName(static_cast<v1::Confidence>(c)));
    auto at = summary.bytes_by_confidence().find(name);
    uint64_t bytes = at == summary.bytes_by_confidence().end() ? 0 : at->second;
    if (bytes > 0) {
      parts.push_back(absl::StrCat(
          name, " ", HumanPercent(static_cast<double>(bytes), static_cast<double>(total))));
    } else if (c == v1::CONFIDENCE_LOST) {
      parts.push_back("lost 0");
    }
  }
  return absl::StrCat("blame: ", absl::StrJoin(parts, ", "));
}

// Which of the layers of stacked devices was summed, where that makes a difference.
std::string LayerText(const v1::Summary& summary) {
  if (!summary.stacked_devices()) return "";
  switch (summary.layer()) {
    case v1::LAYER_LEAF:
      return " · on the disks (--layer leaf)";
    case v1::LAYER_ANY:
      return " · on every layer of stacked devices (--layer any)";
    default:
      return " · top-most devices (--layer top)";
  }
}

// Only the time of day when the range ends today: that is what a person compares with a clock.
std::string EndTime(uint64_t unix_ns) {
  absl::Time end = absl::FromUnixNanos(static_cast<int64_t>(unix_ns));
  auto day = absl::ToCivilDay(end, absl::UTCTimeZone());
  const char* format = day == absl::ToCivilDay(absl::Now(), absl::UTCTimeZone())
                           ? "%H:%M:%S UTC"
                           : "%Y-%m-%d %H:%M:%S UTC";
  return absl::FormatTime(format, end, absl::UTCTimeZone());
}

// "3 gaps" and the like are said by the aggregator's own warnings; these lines say which.
std::string GapDetails(const v1::Summary& summary) {
  std::vector<std::string> shown;
  for (const v1::HostGap& gap : summary.gaps()) {
    if (static_cast<int>(shown.size()) == kGapsShown) break;
    shown.push_back(
        absl::StrCat(gap.hostname(), " ", HumanTime(gap.gap().start_unix_ns()), " for ",
                     HumanSpan(gap.gap().end_unix_ns() -
                               std::min(gap.gap().start_unix_ns(), gap.gap().end_unix_ns())),
                     " (", gap.gap().cause(), ")"));
  }
  uint64_t more = summary.gaps_total() - std::min<uint64_t>(summary.gaps_total(), shown.size());
  return absl::StrCat("  gaps: ", absl::StrJoin(shown, "; "),
                      more > 0 ? absl::StrCat("; ", HumanCount(more), " more") : "");
}

std::string SkewDetails(const v1::Summary& summary) {
  std::vector<std::string> hosts(summary.skewed_hosts().begin(), summary.skewed_hosts().end());
  const size_t total = hosts.size();
  hosts.resize(std::min<size_t>(total, kGapsShown));
  return absl::StrCat(
      "  clocks: ", absl::StrJoin(hosts, ", "),
      total > hosts.size() ? absl::StrCat("; ", total - hosts.size(), " more") : "");
}

}  // namespace

std::string SummaryLines(const v1::Summary& s, const Terminal& terminal) {
  std::vector<std::string> warnings(s.warnings().begin(), s.warnings().end());
  if (!s.gaps().empty()) warnings.push_back(GapDetails(s));
  if (!s.skewed_hosts().empty()) warnings.push_back(SkewDetails(s));
  std::string out = absl::StrCat(
      HumanSpan(s.end_unix_ns() - std::min(s.start_unix_ns(), s.end_unix_ns())), " to ",
      EndTime(s.end_unix_ns()), " · ", HumanCount(s.hosts_with_data()), " of ",
      HumanCount(s.hosts_matched()), s.hosts_matched() == 1 ? " host" : " hosts", " · written ",
      HumanBytes(static_cast<double>(s.written_bytes())), ", read ",
      HumanBytes(static_cast<double>(s.read_bytes())), " · ", Blame(s), LayerText(s), "\n");
  for (const std::string& warning : warnings) {
    std::string line = absl::StrCat("! ", Printable(warning));
    absl::StrAppend(&out, terminal.colour ? absl::StrCat("\x1b[33m", line, "\x1b[0m") : line, "\n");
  }
  return out;
}

}  // namespace fleetblame::cli
