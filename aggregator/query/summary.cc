// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/summary.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/query/dimension_text.h"
#include "common/loss_counters.h"
#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

std::string Count(uint64_t n, const char* one, const char* many) {
  return absl::StrCat(n, " ", n == 1 ? one : many);
}

void FillTotals(const Totals& totals, v1::Summary* out) {
  out->set_read_bytes(totals.sums.read_bytes);
  out->set_written_bytes(totals.sums.written_bytes);
  out->set_layer(totals.layer);
  out->set_stacked_devices(totals.stacked_devices);
  for (size_t i = 0; i < totals.bytes_by_confidence.size(); ++i) {
    if (totals.bytes_by_confidence[i] == 0) continue;
    std::string name = ConfidenceText(static_cast<v1::Confidence>(i));
    (*out->mutable_bytes_by_confidence())[name.empty() ? "unknown" : name] =
        totals.bytes_by_confidence[i];
  }
}

void FillHosts(const HostSet& hosts, uint32_t with_data, v1::Summary* out) {
  out->set_hosts_matched(static_cast<uint32_t>(hosts.size()));
  out->set_hosts_with_data(with_data);
  if (hosts.known() == 0) {
    out->add_warnings("No host has ever sent data to this aggregator.");
  } else if (hosts.size() == 0) {
    out->add_warnings(
        absl::StrCat("None of ", Count(hosts.known(), "host", "hosts"), " matches the selector."));
  } else if (with_data < hosts.size()) {
    out->add_warnings(absl::StrCat(hosts.size() - with_data, " of ",
                                   Count(hosts.size(), "matched host has", "matched hosts have"),
                                   " no data in this range."));
  }
}

void FillSkew(const HostSet& hosts, uint64_t threshold_ns, v1::Summary* out) {
  uint64_t skewed = 0;
  for (const HostRecord& h : hosts.hosts()) {
    uint64_t skew = h.clock_skew_ns < 0 ? 0 - static_cast<uint64_t>(h.clock_skew_ns)
                                        : static_cast<uint64_t>(h.clock_skew_ns);
    if (skew <= threshold_ns) continue;
    if (++skewed <= kMaxSummaryHosts) out->add_skewed_hosts(NameOf(h));
  }
  if (skewed == 0) return;
  out->add_warnings(absl::StrCat(
      skewed == 1 ? "The clock of 1 matched host is" : "The clocks of ",
      skewed == 1 ? std::string() : absl::StrCat(skewed, " matched hosts are"), " more than ",
      threshold_ns / kSecondNs, " s off; what they sent may stand at a wrong time."));
}

// What the store knows of holes in the data, gathered from parts of the hosts in parallel: it keeps
// them host by host, and over a large fleet they take as long as a scan of its sums.
struct Holes {
  std::vector<StoredGap> gaps;
  std::map<std::string, uint64_t> losses;
};

absl::StatusOr<Holes> FindHoles(const ScanEnv& env, const ScanRange& range) {
  constexpr size_t kHostsPerPart = 128;
  std::span<const HostNumber> hosts = env.hosts->numbers();
  const size_t parts = (hosts.size() + kHostsPerPart - 1) / kHostsPerPart;
  absl::Mutex mutex;
  Holes all;
  ParallelFor(env.helpers, parts, [&](size_t part, int) {
    if (!env.context->KeepGoing()) return;
    std::span<const HostNumber> mine = hosts.subspan(
        part * kHostsPerPart, std::min(kHostsPerPart, hosts.size() - part * kHostsPerPart));
    auto gaps = env.view->Gaps(mine, range);
    auto losses = env.view->Losses(mine, range);
    if (!gaps.ok()) return env.context->Fail(gaps.status());
    if (!losses.ok()) return env.context->Fail(losses.status());
    absl::MutexLock lock(&mutex);
    std::move(gaps->begin(), gaps->end(), std::back_inserter(all.gaps));
    for (const auto& [name, delta] : *losses) Grow(&all.losses[name], delta);
  });
  if (absl::Status s = env.context->status(); !s.ok()) return s;
  return all;
}

void FillGaps(const ScanEnv& env, std::vector<StoredGap> gaps, v1::Summary* out) {
  std::sort(gaps.begin(), gaps.end(), [](const StoredGap& a, const StoredGap& b) {
    return std::make_tuple(a.gap.start_unix_ns(), a.host, a.gap.end_unix_ns()) <
           std::make_tuple(b.gap.start_unix_ns(), b.host, b.gap.end_unix_ns());
  });
  out->set_gaps_total(gaps.size());
  std::set<HostNumber> hosts;
  for (const StoredGap& g : gaps) {
    hosts.insert(g.host);
    const HostRecord* host = env.hosts->Find(g.host);
    if (host == nullptr || static_cast<size_t>(out->gaps_size()) >= kMaxSummaryGaps) continue;
    v1::HostGap* entry = out->add_gaps();
    entry->set_host_id(host->host_id);
    entry->set_hostname(host->hostname);
    *entry->mutable_gap() = g.gap;
  }
  if (gaps.empty()) return;
  out->add_warnings(absl::StrCat("Data is missing: ", Count(gaps.size(), "gap", "gaps"), " on ",
                                 Count(hosts.size(), "host", "hosts"), "."));
}

void FillLosses(const std::map<std::string, uint64_t>& losses, v1::Summary* out) {
  std::vector<std::string> bytes, blame;
  for (const auto& [name, delta] : losses) {
    if (delta == 0) continue;
    (*out->mutable_losses())[name] = delta;
    const LossMeaning meaning = MeaningOfLoss(name);
    if (meaning == LossMeaning::kNote) continue;
    (meaning == LossMeaning::kBytes ? bytes : blame).push_back(absl::StrCat(name, " ", delta));
  }
  auto warn = [out](const char* what, const std::vector<std::string>& counters) {
    if (counters.empty()) return;
    out->add_warnings(absl::StrCat(what, " (", absl::StrJoin(counters, ", "),
                                   "); docs/counters.md says what helps."));
  };
  warn("Some IO was lost", bytes);
  warn("Some IO lacks who made it, or why", blame);
}

}  // namespace

absl::Status FillSummary(const ScanEnv& env, const SummaryInput& in, v1::Summary* out) {
  const ScanFacts& facts = *in.facts;
  const bool any = facts.blocks > 0;
  ScanRange range;
  range.start_unix_ns = in.range.start_unix_ns;
  range.end_unix_ns = in.range.end_unix_ns;
  out->set_start_unix_ns(any ? std::min(range.start_unix_ns, facts.start_unix_ns)
                             : range.start_unix_ns);
  out->set_end_unix_ns(any ? std::max(range.end_unix_ns, facts.end_unix_ns) : range.end_unix_ns);
  FillHosts(*env.hosts, facts.hosts_with_data, out);
  if (in.totals != nullptr) FillTotals(*in.totals, out);
  absl::StatusOr<Holes> holes = FindHoles(env, range);
  if (!holes.ok()) return holes.status();
  FillGaps(env, std::move(holes->gaps), out);
  FillSkew(*env.hosts, in.skew_threshold_ns, out);
  FillLosses(holes->losses, out);
  out->set_resolution_ns(facts.finest_ns);
  out->set_rows_scanned(env.context->rows());
  if (in.missing_definitions > 0) {
    out->add_warnings(absl::StrCat("The store lacks ",
                                   Count(in.missing_definitions, "definition", "definitions"),
                                   "; their rows appear as unknown."));
  }
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
