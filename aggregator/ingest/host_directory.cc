// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/host_directory.h"

#include <cstdlib>
#include <utility>

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
    entry.definitions =
        std::make_shared<TokenBucket>(limits_.definitions_burst, limits_.definitions_per_second);
    entry.host = std::move(host);
    std::string id = entry.host.host_id;
    hosts_.emplace(std::move(id), std::move(entry));
  }
}

absl::StatusOr<HostDirectory::Registered> HostDirectory::Register(HostRecord host, absl::Time now) {
  auto at = hosts_.find(host.host_id);
  if (at == hosts_.end()) {
    if (hosts_.size() >= limits_.max_hosts) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are already ", hosts_.size(), " hosts, which is the limit"));
    }
    Entry entry;
    entry.definitions =
        std::make_shared<TokenBucket>(limits_.definitions_burst, limits_.definitions_per_second);
    at = hosts_.emplace(host.host_id, std::move(entry)).first;
  }
  Entry& entry = at->second;
  uint64_t previously_seen = entry.host.last_seen_unix_ns;
  bool known = entry.host.number != 0;
  host.first_seen_unix_ns = known ? entry.host.first_seen_unix_ns : host.last_seen_unix_ns;
  if (!known || !SameButForTimes(entry.host, host) || now - entry.written > kRewriteAfter) {
    absl::StatusOr<HostNumber> number = store_->UpsertHost(host);
    if (!number.ok()) {
      if (!known) hosts_.erase(at);
      return number.status();
    }
    host.number = *number;
    entry.written = now;
  } else {
    host.number = entry.host.number;
  }
  entry.host = host;
  return Registered{std::move(host), previously_seen, entry.definitions};
}

}  // namespace fleetblame::aggregator
