// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/host_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/rocks_status.h"
#include "aggregator/store/stored.pb.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kWriteEveryNs = 60'000'000'000;

std::string Serialize(const HostRecord& host) {
  stored::Host out;
  out.set_number(host.number);
  out.set_host_id(host.host_id);
  out.set_hostname(host.hostname);
  out.mutable_labels()->insert(host.labels.begin(), host.labels.end());
  out.set_kernel_release(host.kernel_release);
  out.set_agent_version(host.agent_version);
  out.set_tracer(host.tracer);
  out.set_first_seen_unix_ns(host.first_seen_unix_ns);
  out.set_last_seen_unix_ns(host.last_seen_unix_ns);
  out.set_clock_skew_ns(host.clock_skew_ns);
  return out.SerializeAsString();
}

HostRecord FromStored(const stored::Host& in) {
  HostRecord host;
  host.number = in.number();
  host.host_id = in.host_id();
  host.hostname = in.hostname();
  host.labels.insert(in.labels().begin(), in.labels().end());
  host.kernel_release = in.kernel_release();
  host.agent_version = in.agent_version();
  host.tracer = in.tracer();
  host.first_seen_unix_ns = in.first_seen_unix_ns();
  host.last_seen_unix_ns = in.last_seen_unix_ns();
  host.clock_skew_ns = in.clock_skew_ns();
  return host;
}

}  // namespace

absl::Status HostTable::Load() {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<rocksdb::Iterator> at(
      database_->db()->NewIterator(rocksdb::ReadOptions(), database_->family(Family::kMeta)));
  std::string prefix = HostPrefix();
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    stored::Host host;
    if (!host.ParseFromArray(at->value().data(), static_cast<int>(at->value().size())) ||
        host.number() != hosts_.size() + 1) {
      return absl::DataLossError(absl::StrCat("store ", database_->path(), ": the record of host ",
                                              hosts_.size() + 1, " is damaged or missing"));
    }
    hosts_.push_back({FromStored(host), host.last_seen_unix_ns()});
    numbers_[host.host_id()] = host.number();
  }
  return FromRocks(at->status(), absl::StrCat("read hosts of store ", database_->path()));
}

std::vector<HostRecord> HostTable::Prepare(std::span<const HostRecord> hosts,
                                           rocksdb::WriteBatch* batch) const {
  absl::MutexLock lock(&mutex_);
  std::vector<HostRecord> all;
  all.reserve(hosts.size());
  absl::flat_hash_map<std::string, size_t> here;  // in `all`, its last record of each host
  HostNumber next = static_cast<HostNumber>(hosts_.size()) + 1;
  for (const HostRecord& host : hosts) {
    HostRecord prepared = host;
    auto at = numbers_.find(host.host_id);
    auto [earlier, first] = here.try_emplace(host.host_id, all.size());
    const HostRecord* known = !first                 ? &all[earlier->second]
                              : at != numbers_.end() ? &hosts_[at->second - 1].record
                                                     : nullptr;
    if (known == nullptr) {
      prepared.number = next++;
      if (prepared.first_seen_unix_ns == 0) {
        prepared.first_seen_unix_ns = prepared.last_seen_unix_ns;
      }
    } else {
      prepared.number = known->number;
      prepared.first_seen_unix_ns = known->first_seen_unix_ns;
      prepared.last_seen_unix_ns = std::max(known->last_seen_unix_ns, prepared.last_seen_unix_ns);
    }
    earlier->second = all.size();
    batch->Put(database_->family(Family::kMeta), HostKey(prepared.number), Serialize(prepared));
    all.push_back(std::move(prepared));
  }
  return all;
}

void HostTable::Commit(std::span<const HostRecord> prepared) {
  absl::MutexLock lock(&mutex_);
  for (const HostRecord& host : prepared) {
    if (host.number > hosts_.size()) hosts_.emplace_back();
    hosts_[host.number - 1] = {host, host.last_seen_unix_ns};
    numbers_[host.host_id] = host.number;
  }
}

void HostTable::NoteBatch(HostNumber host, uint64_t end_unix_ns, rocksdb::WriteBatch* batch) {
  absl::MutexLock lock(&mutex_);
  Entry& entry = hosts_[host - 1];
  if (end_unix_ns <= entry.record.last_seen_unix_ns) return;
  entry.record.last_seen_unix_ns = end_unix_ns;
  if (end_unix_ns < entry.written_last_seen_unix_ns + kWriteEveryNs) return;
  entry.written_last_seen_unix_ns = end_unix_ns;
  batch->Put(database_->family(Family::kMeta), HostKey(host), Serialize(entry.record));
}

bool HostTable::Has(HostNumber host) const {
  absl::MutexLock lock(&mutex_);
  return host >= 1 && host <= hosts_.size();
}

uint32_t HostTable::count() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<uint32_t>(hosts_.size());
}

std::vector<HostRecord> HostTable::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<HostRecord> out;
  out.reserve(hosts_.size());
  for (const Entry& entry : hosts_) out.push_back(entry.record);
  return out;
}

}  // namespace fleetblame::aggregator
