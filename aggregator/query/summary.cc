// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/summary.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/query/dimension_text.h"

namespace fleetblame::aggregator {
namespace {

std::string Count(uint64_t n, const char* one, const char* many) {
  return absl::StrCat(n, " ", n == 1 ? one : many);
}

void FillTotals(const Totals& totals, v1::Summary* out) {
  out->set_read_bytes(totals.sums.read_bytes);
  out->set_written_bytes(totals.sums.written_bytes);
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

absl::Status FillGaps(const ScanEnv& env, const ScanRange& range, v1::Summary* out) {
  absl::StatusOr<std::vector<StoredGap>> gaps = env.view->Gaps(env.hosts->numbers(), range);
  if (!gaps.ok()) return gaps.status();
  std::sort(gaps->begin(), gaps->end(), [](const StoredGap& a, const StoredGap& b) {
    return std::make_tuple(a.gap.start_unix_ns(), a.host, a.gap.end_unix_ns()) <
           std::make_tuple(b.gap.start_unix_ns(), b.host, b.gap.end_unix_ns());
  });
  out->set_gaps_total(gaps->size());
  std::set<HostNumber> hosts;
  for (const StoredGap& g : *gaps) {
    hosts.insert(g.host);
    const HostRecord* host = env.hosts->Find(g.host);
    if (host == nullptr || static_cast<size_t>(out->gaps_size()) >= kMaxSummaryGaps) continue;
    v1::HostGap* entry = out->add_gaps();
    entry->set_host_id(host->host_id);
    entry->set_hostname(host->hostname);
    *entry->mutable_gap() = g.gap;
  }
  if (!gaps->empty()) {
    out->add_warnings(absl::StrCat("Data is missing: ", Count(gaps->size(), "gap", "gaps"), " on ",
                                   Count(hosts.size(), "host", "hosts"), "."));
  }
  return absl::OkStatus();
}

absl::Status FillLosses(const ScanEnv& env, const ScanRange& range, v1::Summary* out) {
  auto losses = env.view->Losses(env.hosts->numbers(), range);
  if (!losses.ok()) return losses.status();
  uint64_t sum = 0;
  for (const auto& [name, delta] : *losses) {
    if (delta == 0) continue;
    (*out->mutable_losses())[name] = delta;
    sum += delta;
  }
  if (sum > 0) {
    out->add_warnings(absl::StrCat("Agents counted ", Count(sum, "event", "events"),
                                   " that they had to drop or fold; docs/counters.md says what "
                                   "each counter in losses means."));
  }
  return absl::OkStatus();
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
  if (absl::Status s = FillGaps(env, range, out); !s.ok()) return s;
  FillSkew(*env.hosts, in.skew_threshold_ns, out);
  if (absl::Status s = FillLosses(env, range, out); !s.ok()) return s;
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
