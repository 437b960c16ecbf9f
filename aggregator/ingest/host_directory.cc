// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/host_directory.h"

#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

// An unchanged host is written again after this, so that last_seen of an idle one stays fresh.
constexpr absl::Duration kRewriteAfter = absl::Hours(1);
constexpr int64_t kSkewToleranceNs = 1'000'000'000;

bool SameButForTimes(const HostRecord& a, const HostRecord& b) {
  return a.hostname == b.hostname && a.labels == b.labels && a.kernel_release == b.kernel_release &&
         a.agent_version == b.agent_version && a.tracer == b.tracer &&
         std::llabs(a.clock_skew_ns - b.clock_skew_ns) < kSkewToleranceNs;
}

}  // namespace

HostDirectory::HostDirectory(Store* store, const IngestLimits& limits)
    : store_(store), limits_(limits) {
  for (HostRecord& host : store_->NewReadView()->Hosts()) {
    Entry entry;
    entry.written = absl::FromUnixNanos(static_cast<int64_t>(host.last_seen_unix_ns));
    entry.definitions = NewBucket();
    entry.host = std::move(host);
    std::string id = entry.host.host_id;
    hosts_.emplace(std::move(id), std::move(entry));
  }
}

std::shared_ptr<TokenBucket> HostDirectory::NewBucket() const {
  return std::make_shared<TokenBucket>(limits_.definitions_burst, limits_.definitions_per_second);
}

std::string HostDirectory::HostnameOf(const std::string& host_id) const {
  auto at = hosts_.find(host_id);
  return at == hosts_.end() ? std::string() : at->second.host.hostname;
}

std::vector<absl::Status> HostDirectory::Admit(const std::vector<HostRecord>& hosts) const {
  std::vector<absl::Status> admitted;
  admitted.reserve(hosts.size());
  absl::flat_hash_set<std::string_view> fresh;
  for (const HostRecord& host : hosts) {
    bool place = hosts_.contains(host.host_id) || fresh.contains(host.host_id) ||
                 hosts_.size() + fresh.size() < limits_.max_hosts;
    if (place && !hosts_.contains(host.host_id)) fresh.insert(host.host_id);
    admitted.push_back(place ? absl::OkStatus()
                             : absl::ResourceExhaustedError(
                                   absl::StrCat("there are already ", hosts_.size() + fresh.size(),
                                                " hosts, which is the limit")));
  }
  return admitted;
}

bool HostDirectory::Complete(HostRecord* host, absl::Time now) const {
  auto at = hosts_.find(host->host_id);
  if (at == hosts_.end()) {
    host->first_seen_unix_ns = host->last_seen_unix_ns;
    return true;
  }
  const Entry& entry = at->second;
  host->number = entry.host.number;
  host->first_seen_unix_ns = entry.host.first_seen_unix_ns;
  return !SameButForTimes(entry.host, *host) || now - entry.written > kRewriteAfter;
}

HostDirectory::Registered HostDirectory::Remember(HostRecord host, bool written, absl::Time now) {
  auto [at, fresh] = hosts_.try_emplace(host.host_id);
  Entry& entry = at->second;
  if (fresh) entry.definitions = NewBucket();
  if (written) entry.written = now;
  uint64_t previously_seen = entry.host.last_seen_unix_ns;
  entry.host = host;
  return {std::move(host), previously_seen, entry.definitions};
}

std::vector<absl::StatusOr<HostDirectory::Registered>> HostDirectory::Register(
    std::vector<HostRecord> hosts, absl::Time now) {
  std::vector<absl::Status> admitted = Admit(hosts);
  std::vector<HostRecord> to_write;
  std::vector<bool> needs_write(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!admitted[i].ok()) continue;
    needs_write[i] = Complete(&hosts[i], now);
    if (needs_write[i]) to_write.push_back(hosts[i]);
  }
  absl::StatusOr<std::vector<HostNumber>> numbers = store_->UpsertHosts(to_write);

  std::vector<absl::StatusOr<Registered>> results;
  results.reserve(hosts.size());
  size_t next = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!admitted[i].ok()) {
      results.push_back(admitted[i]);
    } else if (needs_write[i] && !numbers.ok()) {
      results.push_back(numbers.status());
    } else {
      if (needs_write[i]) hosts[i].number = (*numbers)[next++];
      results.push_back(Remember(std::move(hosts[i]), needs_write[i], now));
    }
  }
  return results;
}

}  // namespace fleetblame::aggregator
