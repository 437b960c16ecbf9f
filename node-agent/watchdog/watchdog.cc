// SPDX-License-Identifier: Apache-2.0
#include "node-agent/watchdog/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fleetblame::agent {

std::optional<Usage> ReadUsage(const std::string& proc) {
  std::ifstream file(proc + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name of the program is in parentheses and may hold anything.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  uint64_t user_ticks = 0;
  uint64_t system_ticks = 0;
  int64_t rss_pages = 0;
  // Fields 3 to 13 of proc(5) come before utime, 16 to 23 between stime and rss.
  for (int field = 3; field <= 13; ++field) fields >> skipped;
  fields >> user_ticks >> system_ticks;
  for (int field = 16; field <= 23; ++field) fields >> skipped;
  fields >> rss_pages;
  if (!fields || rss_pages < 0) return std::nullopt;
  Usage usage;
  usage.cpu = absl::Seconds(user_ticks + system_ticks) / ::sysconf(_SC_CLK_TCK);
  usage.rss_bytes = static_cast<uint64_t>(rss_pages) * ::sysconf(_SC_PAGESIZE);
  return usage;
}

int Watchdog::Observe(absl::Time now, const Usage& usage) {
  readings_.push_back({now, usage.cpu});
  // The oldest reading is the last one that is at least a span old.
  while (readings_.size() > 2 && now - readings_[1].time >= options_.span) readings_.pop_front();
  const Reading& oldest = readings_.front();
  const absl::Duration elapsed = now - oldest.time;
  if (elapsed > absl::ZeroDuration()) {
    cpu_percent_ = 100 * absl::FDivDuration(usage.cpu - oldest.cpu, elapsed);
  }
  rss_bytes_ = usage.rss_bytes;

  const bool cpu_known = elapsed >= options_.span;
  const bool too_busy =
      options_.max_cpu_percent > 0 && cpu_known && cpu_percent_ > options_.max_cpu_percent;
  const bool too_large = options_.max_rss_bytes > 0 && rss_bytes_ > options_.max_rss_bytes;
  if (too_busy || too_large) {
    within_since_ = absl::InfinitePast();
    // A step needs a span to show what it did.
    if (step_ < kSteps && now - last_change_ >= options_.span) {
      ++step_;
      last_change_ = now;
      reason_ = too_busy
                    ? absl::StrFormat("%.1f %% of a core, budget %.1f %%", cpu_percent_,
                                      options_.max_cpu_percent)
                    : absl::StrCat(rss_bytes_, " bytes resident, budget ", options_.max_rss_bytes);
    }
    return step_;
  }
  if (within_since_ == absl::InfinitePast()) within_since_ = now;
  if (step_ > 0 && now - std::max(within_since_, last_change_) >= options_.recovery) {
    --step_;
    last_change_ = now;
    reason_ = "within the budget again";
  }
  return step_;
}

}  // namespace fleetblame::agent
