// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/tag_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/tag_wait_sums.h"
#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

std::string PoolOf(const v1::TagSet& set) {
  return absl::StrCat(set.driver(), "\n", set.host(), "\n", set.pci_address(), "\n", set.model());
}

const v1::TagSet* FindSet(const v1::TagWaits& waits, uint32_t number) {
  if (number == 0) return nullptr;
  for (const v1::TagSet& set : waits.sets()) {
    if (set.set() == number) return &set;
  }
  return nullptr;
}

const v1::TagDisk* FindDisk(const v1::TagWaits& waits, uint32_t device, uint32_t set) {
  for (const v1::TagDisk& disk : waits.disks()) {
    if (disk.device() == device && disk.set() == set) return &disk;
  }
  return nullptr;
}

}  // namespace

void TagMetrics::Add(const v1::TagWaitRow& row) {
  Grow(&waits, row.waits());
  Grow(&woke_at_once, row.woke_at_once());
  Grow(&rounds, row.rounds());
  Grow(&wait_ns, row.wait_ns());
  max_wait_ns = std::max(max_wait_ns, row.max_wait_ns());
  Grow(&ended_with_tag, row.ended_with_tag());
  Grow(&ended_by_signal, row.ended_by_signal());
  Grow(&ended_by_removal, row.ended_by_removal());
  Grow(&ended_by_freeze, row.ended_by_freeze());
  Grow(&ended_unseen, row.ended_unseen());
  const int buckets = std::min(row.wait().buckets_size(), row.wait().counts_size());
  for (int i = 0; i < buckets; ++i) {
    const uint32_t bucket = row.wait().buckets(i);
    if (bucket < kHistogramBuckets) wait.Add(static_cast<int>(bucket), row.wait().counts(i));
  }
}

void TagMetrics::Merge(const TagMetrics& other) {
  Grow(&waits, other.waits);
  Grow(&woke_at_once, other.woke_at_once);
  Grow(&rounds, other.rounds);
  Grow(&wait_ns, other.wait_ns);
  max_wait_ns = std::max(max_wait_ns, other.max_wait_ns);
  Grow(&ended_with_tag, other.ended_with_tag);
  Grow(&ended_by_signal, other.ended_by_signal);
  Grow(&ended_by_removal, other.ended_by_removal);
  Grow(&ended_by_freeze, other.ended_by_freeze);
  Grow(&ended_unseen, other.ended_unseen);
  wait.Merge(other.wait);
}

void TagMetrics::Store(v1::TagWaitMetrics* out) const {
  out->set_waits(waits);
  out->set_woke_at_once(woke_at_once);
  out->set_rounds(rounds);
  out->set_wait_ns(wait_ns);
  out->set_max_wait_ns(max_wait_ns);
  out->set_ended_with_tag(ended_with_tag);
  out->set_ended_by_signal(ended_by_signal);
  out->set_ended_by_removal(ended_by_removal);
  out->set_ended_by_freeze(ended_by_freeze);
  out->set_ended_unseen(ended_unseen);
  for (const auto& [bucket, count] : wait.entries()) {
    out->mutable_wait()->add_buckets(bucket);
    out->mutable_wait()->add_counts(count);
  }
}

bool TagTable::Wanted(NameId device) const {
  return devices_.empty() || devices_.contains(names_->Text(device));
}

TagGroup* TagTable::Find(const Key& key) {
  auto at = groups_.find(key);
  if (at != groups_.end()) return &at->second;
  if (!context_->ChargeGroup()) return nullptr;
  return &groups_[key];
}

bool TagTable::Add(const ScannedTagWaits& block) {
  const v1::TagWaits& waits = *block.waits;
  const auto rows = static_cast<uint64_t>(waits.rows_size() + waits.holders_size());
  if (!context_->Charge(rows, waits.SpaceUsedLong())) return false;
  Open& open = hosts_[block.host];
  if (block.end_unix_ns >= open.at_ns) {
    open.at_ns = block.end_unix_ns;
    open.waits =
        waits.has_open_waits() ? std::optional<uint64_t>(waits.open_waits()) : std::nullopt;
  }
  if (waits.source() == v1::TAG_WAIT_SOURCE_INFERRED) inferring_.insert(block.host);
  return AddRows(block) && AddHolders(block);
}

bool TagTable::AddRows(const ScannedTagWaits& block) {
  for (const v1::TagWaitRow& row : block.waits->rows()) {
    if (row.source() == v1::TAG_WAIT_SOURCE_INFERRED) inferring_.insert(block.host);
    Key key{block.host, names_->DeviceName(row.device()), "", row.kind(), row.reserved()};
    if (!Wanted(key.device)) continue;
    const v1::TagSet* set = FindSet(*block.waits, row.set());
    if (set != nullptr) key.pool = PoolOf(*set);
    TagGroup* group = Find(key);
    if (group == nullptr) return false;
    if (block.end_unix_ns >= group->settings_at_ns) {
      group->settings_at_ns = block.end_unix_ns;
      group->device = row.device();
      if (set != nullptr) group->set = *set;
      const v1::TagDisk* disk = FindDisk(*block.waits, row.device(), row.set());
      if (disk != nullptr) group->settings = *disk;
    }
    if (row.has_nr_tags()) {
      group->nr_tags_min = std::min(group->nr_tags_min.value_or(row.nr_tags()), row.nr_tags());
      group->nr_tags_max = std::max(group->nr_tags_max.value_or(row.nr_tags()), row.nr_tags());
    }
    if (row.has_hctx()) group->hctxs.insert(row.hctx());
    group->metrics.Add(row);
    Grow(&group->active_sum, row.active_sum());
    Grow(&group->active_samples, row.active_samples());
    group->active_max = std::max(group->active_max, row.active_max());
    Grow(&group->sources[row.source()], row.waits());
    if (row.waits() == 0) continue;
    auto [at, inserted] = group->waiters.try_emplace({row.intent(), names_->Comm(row.actor())});
    if (inserted && !context_->ChargeGroup()) return false;
    Grow(&at->second.waits, row.waits());
    Grow(&at->second.wait_ns, row.wait_ns());
    at->second.max_wait_ns = std::max(at->second.max_wait_ns, row.max_wait_ns());
  }
  return true;
}

bool TagTable::AddHolders(const ScannedTagWaits& block) {
  // Within one block every holder of a pool has the same number of samples; a disk that another
  // block does not name held nothing then.
  struct Seen {
    uint64_t samples = 0;
    uint64_t nr_tags_sum = 0;
  };
  std::map<std::pair<TagGroup*, DeviceNumber>, Seen> seen;
  for (const v1::TagHolder& holder : block.waits->holders()) {
    Key key{block.host, names_->DeviceName(holder.waiter_device()), "", holder.kind(),
            holder.reserved()};
    if (!Wanted(key.device)) continue;
    const v1::TagSet* set = FindSet(*block.waits, holder.set());
    if (set != nullptr) key.pool = PoolOf(*set);
    TagGroup* group = Find(key);
    if (group == nullptr) return false;
    // What the row says in the window in which the wait ends, maybe after the range.
    if (group->device == 0) group->device = holder.waiter_device();
    if (!group->set.has_value() && set != nullptr) group->set = *set;
    TagGroup::Held& held = group->holders[names_->DeviceName(holder.holder_device())];
    if (block.end_unix_ns >= held.settings_at_ns) {
      held.settings_at_ns = block.end_unix_ns;
      held.device = holder.holder_device();
      const v1::TagDisk* disk = FindDisk(*block.waits, holder.holder_device(), holder.set());
      if (disk != nullptr) held.settings = *disk;
    }
    Grow(&held.tags_sum, holder.tags_sum());
    held.tags_max = std::max(held.tags_max, holder.tags_max());
    // By number: a name may have had two of them in one bucket.
    Seen& s = seen[{group, holder.waiter_device()}];
    s.samples = std::max(s.samples, holder.samples());
    s.nr_tags_sum = std::max(s.nr_tags_sum, holder.nr_tags_sum());
  }
  for (const auto& [key, s] : seen) {
    Grow(&key.first->holder_samples, s.samples);
    Grow(&key.first->nr_tags_sum, s.nr_tags_sum);
  }
  return true;
}

std::optional<uint64_t> TagTable::open_waits() const {
  std::optional<uint64_t> sum;
  for (const auto& [host, open] : hosts_) {
    if (open.waits.has_value()) sum = SaturatingAdd(sum.value_or(0), *open.waits);
  }
  return sum;
}

}  // namespace fleetblame::aggregator
