// SPDX-License-Identifier: Apache-2.0
#include "cli/tag_findings.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/histogram_proto.h"
#include "cli/units.h"

namespace fleetblame::cli {
namespace {

using Row = v1::TagsResponse::Row;
using Holder = v1::TagsResponse::Holder;

// From this share of the pool on a disk is named as the one that holds the tags.
constexpr double kMost = 0.5;
// The kernel takes no smaller nr_requests.
constexpr uint32_t kSmallestNrRequests = 4;

std::string Number(double value) {
  return value == std::floor(value) ? absl::StrFormat("%.0f", value)
                                    : absl::StrFormat("%.1f", value);
}

std::string Name(const std::string& device) {
  return device.empty() ? "a queue without a disk" : device;
}

// "sdb held 3.7 of 4 tags"
std::string Held(const Holder& holder) {
  std::string out = absl::StrCat(holder.device().empty() ? "other disks" : holder.device(),
                                 " held ", Number(std::round(*MeanOf(holder) * 10) / 10));
  if (holder.nr_tags_sum() > 0) {
    const double pool =
        static_cast<double>(holder.nr_tags_sum()) / static_cast<double>(holder.samples());
    absl::StrAppend(&out, " of ", Number(std::round(pool * 10) / 10));
  }
  return absl::StrCat(out, " tags", holder.waiter() ? " itself" : "");
}

// What keeps a disk from taking so many tags of a common pool, as far as its settings are known.
std::string LimitHolder(const Holder& holder, const Row& row) {
  if (holder.device().empty()) return "";
  std::vector<std::string> ways;
  const v1::TagDisk& disk = holder.settings();
  const std::string& name = holder.device();
  if (row.nr_tags_min() <= kSmallestNrRequests) {
    // Nothing to gain there.
  } else if (disk.scheduler() == "none") {
    ways.push_back(absl::StrCat("an I/O scheduler for ", name,
                                " with fewer nr_requests than the pool has tags"));
  } else if (!disk.scheduler().empty() && disk.has_nr_requests() &&
             disk.nr_requests() >= row.nr_tags_min()) {
    ways.push_back(absl::StrCat("nr_requests of ", name, " below ", row.nr_tags_min(), " (now ",
                                disk.nr_requests(), ")"));
  }
  if (disk.has_queue_depth() && disk.queue_depth() > 1) {
    ways.push_back(
        absl::StrCat("a smaller queue_depth of ", name, " (now ", disk.queue_depth(), ")"));
  }
  ways.push_back(absl::StrCat("io.max for the cgroups that keep ", name, " busy"));
  return absl::StrJoin(ways, ", or ");
}

std::string HardwareRemedy(const Row& row, const Holder* top) {
  if (top == nullptr || ShareOf(*top).value_or(0) < kMost) return "";
  if (!top->waiter()) {
    // Tags of another disk can only be in the way when both take from one pool.
    if (row.set().has_shared() && !row.set().shared()) return "";
    return LimitHolder(*top, row);
  }
  // The disk starves itself: more is asked of it at once than it has tags for. Who goes first can
  // be chosen when several ask.
  if (row.waiters_size() + static_cast<int>(row.omitted_waiters() > 0) < 2) return "";
  return "cgroup weights (io.weight) or another I/O scheduler, so that those who can wait make "
         "room";
}

std::string SchedulerRemedy(const Row& row) {
  const v1::TagDisk& disk = row.settings();
  std::vector<std::string> ways;
  if (disk.has_nr_requests() && row.set().has_queue_depth() &&
      disk.nr_requests() < row.set().queue_depth()) {
    ways.push_back(absl::StrCat("more nr_requests (now ", disk.nr_requests(),
                                "; the controller takes ", row.set().queue_depth(), " at once)"));
  }
  if (!ways.empty() && !disk.scheduler().empty() && disk.scheduler() != "none") {
    ways.push_back(
        absl::StrCat("scheduler none instead of ", disk.scheduler(), ", which has no such pool"));
  }
  if (ways.empty() && row.waiters_size() >= 2) {
    ways.push_back("cgroup weights (io.weight), so that those who can wait make room");
  }
  return absl::StrJoin(ways, ", or ");
}

// What makes the figures other than they look.
std::string Reservations(const Row& row) {
  const v1::TagWaitMetrics& m = row.metrics();
  std::vector<std::string> out;
  uint64_t inferred = 0;
  for (const auto& source : row.sources()) {
    if (source.source() == v1::TAG_WAIT_SOURCE_INFERRED) inferred += source.waits();
  }
  if (inferred > 0) {
    out.push_back(
        inferred == m.waits()
            ? std::string("inferred from sleeping tasks, so some are missing")
            : absl::StrCat(HumanCount(inferred), " of them inferred from sleeping tasks"));
  }
  for (auto [count, how] : {std::pair{m.ended_by_signal(), "while a fatal signal was pending"},
                            {m.ended_by_removal(), "as the disk was removed"},
                            {m.ended_by_freeze(), "in a freeze of the queue"}}) {
    if (count > 0) out.push_back(absl::StrCat(HumanCount(count), " ended ", how));
  }
  if (m.ended_unseen() > 0) {
    out.push_back(absl::StrCat("the end of ", HumanCount(m.ended_unseen()), " was not seen"));
  }
  return out.empty() ? "" : absl::StrCat(" (", absl::StrJoin(out, "; "), ")");
}

}  // namespace

std::string TagKindText(v1::TagKind kind) {
  switch (kind) {
    case v1::TAG_KIND_HARDWARE:
      return "hardware";
    case v1::TAG_KIND_SCHEDULER:
      return "scheduler";
    default:
      return "unknown kind of";
  }
}

std::string TagSourceText(v1::TagWaitSource source) {
  switch (source) {
    case v1::TAG_WAIT_SOURCE_TRACEPOINT:
      return "tracepoint";
    case v1::TAG_WAIT_SOURCE_FENTRY:
      return "fentry";
    case v1::TAG_WAIT_SOURCE_KPROBE:
      return "kprobe";
    case v1::TAG_WAIT_SOURCE_INFERRED:
      return "inferred";
    default:
      return "unknown";
  }
}

std::optional<uint64_t> SeenNs(uint64_t waits, uint64_t ns) {
  if (waits > 0 && ns == 0) return std::nullopt;
  return ns;
}

std::optional<double> ShareOf(const Holder& holder) {
  if (holder.nr_tags_sum() == 0) return std::nullopt;
  return static_cast<double>(holder.tags_sum()) / static_cast<double>(holder.nr_tags_sum());
}

std::optional<double> MeanOf(const Holder& holder) {
  if (holder.samples() == 0) return std::nullopt;
  return static_cast<double>(holder.tags_sum()) / static_cast<double>(holder.samples());
}

std::string HoldersText(const Row& row, int most) {
  std::vector<std::string> parts;
  for (const Holder& holder : row.holders()) {
    if (static_cast<int>(parts.size()) == most) {
      parts.push_back(absl::StrCat(row.holders_size() - most, " more"));
      break;
    }
    const std::string name = holder.device().empty() ? "others" : holder.device();
    parts.push_back(ShareOf(holder).has_value()
                        ? absl::StrCat(name, " ",
                                       HumanPercent(static_cast<double>(holder.tags_sum()),
                                                    static_cast<double>(holder.nr_tags_sum())))
                        : absl::StrCat(name, " -"));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

std::string Finding(const Row& row, bool name_host) {
  const v1::TagWaitMetrics& m = row.metrics();
  if (m.waits() == 0) return "";
  const SparseHistogram wait = ToSparse(m.wait());
  std::string out =
      absl::StrCat(Name(row.device()), name_host ? absl::StrCat(" of ", row.hostname()) : "",
                   " starved on ", row.reserved() ? "reserved " : "", TagKindText(row.kind()),
                   " tags ", HumanCount(m.waits()), m.waits() == 1 ? " time" : " times");
  if (!wait.empty()) absl::StrAppend(&out, ", p99 ", HumanNs(wait.QuantileNs(0.99)));
  absl::StrAppend(&out, Reservations(row));

  const Holder* top = row.holders().empty() ? nullptr : &row.holders(0);
  if (top != nullptr && !MeanOf(*top).has_value()) top = nullptr;
  std::string remedy;
  if (row.kind() == v1::TAG_KIND_SCHEDULER) {
    if (row.has_nr_tags_min()) {
      absl::StrAppend(
          &out, "; its own pool has ", row.nr_tags_min(),
          row.nr_tags_max() == row.nr_tags_min() ? "" : absl::StrCat(" to ", row.nr_tags_max()));
    }
    remedy = row.reserved() ? "" : SchedulerRemedy(row);
  } else if (top == nullptr) {
    absl::StrAppend(&out, "; who held the tags is not known");
  } else {
    absl::StrAppend(&out, "; ", Held(*top));
    const bool many = row.holders_size() > 1 && ShareOf(*top).value_or(1) < kMost;
    if (many) absl::StrAppend(&out, ", ", Held(row.holders(1)));
    remedy = row.reserved() ? "" : HardwareRemedy(row, top);
  }
  if (!remedy.empty()) absl::StrAppend(&out, "; consider ", remedy);
  return out;
}

}  // namespace fleetblame::cli
