// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/tag_wait_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

// The counters of a row, which are all summed alike.
using Getter = uint64_t (v1::TagWaitRow::*)() const;
using Setter = void (v1::TagWaitRow::*)(uint64_t);
constexpr std::pair<Getter, Setter> kSums[] = {
    {&v1::TagWaitRow::waits, &v1::TagWaitRow::set_waits},
    {&v1::TagWaitRow::woke_at_once, &v1::TagWaitRow::set_woke_at_once},
    {&v1::TagWaitRow::rounds, &v1::TagWaitRow::set_rounds},
    {&v1::TagWaitRow::wait_ns, &v1::TagWaitRow::set_wait_ns},
    {&v1::TagWaitRow::ended_with_tag, &v1::TagWaitRow::set_ended_with_tag},
    {&v1::TagWaitRow::ended_by_signal, &v1::TagWaitRow::set_ended_by_signal},
    {&v1::TagWaitRow::ended_by_removal, &v1::TagWaitRow::set_ended_by_removal},
    {&v1::TagWaitRow::ended_by_freeze, &v1::TagWaitRow::set_ended_by_freeze},
    {&v1::TagWaitRow::ended_unseen, &v1::TagWaitRow::set_ended_unseen},
    {&v1::TagWaitRow::active_sum, &v1::TagWaitRow::set_active_sum},
    {&v1::TagWaitRow::active_samples, &v1::TagWaitRow::set_active_samples},
};

void AddValues(const v1::TagWaitRow& from, v1::TagWaitRow* into) {
  for (const auto& [get, set] : kSums) {
    (into->*set)(SaturatingAdd((into->*get)(), (from.*get)()));
  }
  into->set_max_wait_ns(std::max(into->max_wait_ns(), from.max_wait_ns()));
  into->set_active_max(std::max(into->active_max(), from.active_max()));
}

// A number that a message uses and does not define is none.
uint32_t Mapped(const std::map<uint32_t, uint32_t>& numbers, uint32_t number) {
  auto at = numbers.find(number);
  return at == numbers.end() ? 0 : at->second;
}

}  // namespace

uint32_t TagWaitSums::SetNumber(const v1::TagSet& set) {
  v1::TagSet content = set;
  content.clear_set();
  auto [at, inserted] = set_numbers_.try_emplace(content.SerializeAsString(),
                                                 static_cast<uint32_t>(set_numbers_.size()) + 1);
  if (inserted) {
    content.set_set(at->second);
    sets_.emplace(at->second, std::move(content));
  }
  return at->second;
}

void TagWaitSums::AddRow(const v1::TagWaitRow& row, RowSum* sum) {
  AddValues(row, &sum->values);
  const int buckets = std::min(row.wait().buckets_size(), row.wait().counts_size());
  for (int i = 0; i < buckets; ++i) {
    uint64_t& count = sum->wait[row.wait().buckets(i)];
    count = SaturatingAdd(count, row.wait().counts(i));
  }
}

void TagWaitSums::MergeRow(const RowSum& from, RowSum* into) {
  AddValues(from.values, &into->values);
  for (const auto& [bucket, n] : from.wait) {
    uint64_t& count = into->wait[bucket];
    count = SaturatingAdd(count, n);
  }
}

void TagWaitSums::Add(const v1::TagWaits& waits) {
  any_ = true;
  std::map<uint32_t, uint32_t> sets;
  for (const v1::TagSet& set : waits.sets()) sets[set.set()] = SetNumber(set);
  for (v1::TagDisk disk : waits.disks()) {
    disk.set_set(Mapped(sets, disk.set()));
    std::pair<uint32_t, uint32_t> key(disk.device(), disk.set());
    disks_[key] = std::move(disk);
  }
  for (const v1::TagWaitRow& row : waits.rows()) {
    RowKey key;
    key.device = row.device();
    key.set = Mapped(sets, row.set());
    if (row.has_hctx()) key.hctx = row.hctx();
    key.kind = row.kind();
    key.reserved = row.reserved();
    if (row.has_nr_tags()) key.nr_tags = row.nr_tags();
    key.source = row.source();
    key.intent = row.intent();
    key.actor = row.actor();
    AddRow(row, &rows_[key]);
  }
  AddHolders(waits, sets);
  if (waits.has_open_waits()) open_waits_ = waits.open_waits();
  if (waits.source() != v1::TAG_WAIT_SOURCE_UNSPECIFIED) source_ = waits.source();
}

// Every holder of a pool has the samples of all of them: one that a window does not name held
// nothing then.
void TagWaitSums::AddHolders(const v1::TagWaits& waits, const std::map<uint32_t, uint32_t>& sets) {
  struct Seen {
    uint64_t samples = 0;
    uint64_t nr_tags_sum = 0;
  };
  std::map<PoolKey, Seen> seen;
  for (const v1::TagHolder& holder : waits.holders()) {
    PoolKey key(holder.waiter_device(), Mapped(sets, holder.set()), holder.kind(),
                holder.reserved());
    Held& held = pools_[key].holders[holder.holder_device()];
    held.tags_sum = SaturatingAdd(held.tags_sum, holder.tags_sum());
    held.tags_max = std::max(held.tags_max, holder.tags_max());
    Seen& s = seen[key];
    s.samples = std::max(s.samples, holder.samples());
    s.nr_tags_sum = std::max(s.nr_tags_sum, holder.nr_tags_sum());
  }
  for (const auto& [key, s] : seen) {
    Pool& pool = pools_[key];
    pool.samples = SaturatingAdd(pool.samples, s.samples);
    pool.nr_tags_sum = SaturatingAdd(pool.nr_tags_sum, s.nr_tags_sum);
  }
}

// The `keep` rows that waited longest stay as they are.
void TagWaitSums::FoldRows(size_t keep) {
  std::vector<std::pair<uint64_t, RowKey>> order;
  for (const auto& [key, sum] : rows_) order.emplace_back(sum.values.wait_ns(), key);
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(),
                   std::greater<>());
  auto rekey = [this, &order, keep](auto&& change) {
    for (size_t i = keep; i < order.size(); ++i) {
      auto at = rows_.find(order[i].second);
      if (at == rows_.end()) continue;  // met another one already
      RowKey key = at->first;
      change(&key);
      order[i].second = key;
      if (key == at->first) continue;
      RowSum sum = std::move(at->second);
      rows_.erase(at);
      MergeRow(sum, &rows_[key]);
    }
  };
  rekey([](RowKey* key) { key->intent = key->actor = 0; });
  if (rows_.size() <= 2 * keep) return;
  rekey([](RowKey* key) {
    key->hctx.reset();
    key->nr_tags.reset();
  });
}

v1::TagWaits TagWaitSums::Finish(const Limits& limits) {
  if (rows_.size() > limits.rows) FoldRows(limits.rows / 2);
  v1::TagWaits out;
  for (auto& [number, set] : sets_) *out.add_sets() = std::move(set);
  for (auto& [key, disk] : disks_) *out.add_disks() = std::move(disk);
  for (auto& [key, sum] : rows_) {
    v1::TagWaitRow* row = out.add_rows();
    *row = std::move(sum.values);
    row->set_device(key.device);
    row->set_set(key.set);
    if (key.hctx.has_value()) row->set_hctx(*key.hctx);
    row->set_kind(static_cast<v1::TagKind>(key.kind));
    row->set_reserved(key.reserved);
    if (key.nr_tags.has_value()) row->set_nr_tags(*key.nr_tags);
    row->set_source(static_cast<v1::TagWaitSource>(key.source));
    row->set_intent(key.intent);
    row->set_actor(key.actor);
    for (const auto& [bucket, count] : sum.wait) {
      row->mutable_wait()->add_buckets(bucket);
      row->mutable_wait()->add_counts(count);
    }
  }
  for (auto& [key, pool] : pools_) {
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (const auto& [device, held] : pool.holders) order.emplace_back(held.tags_sum, device);
    std::sort(order.begin(), order.end(), std::greater<>());
    Held& others = pool.holders[0];
    for (size_t i = limits.holders_of_pool; i < order.size(); ++i) {
      if (order[i].second == 0) continue;
      auto at = pool.holders.find(order[i].second);
      others.tags_sum = SaturatingAdd(others.tags_sum, at->second.tags_sum);
      others.tags_max = SaturatingAdd(others.tags_max, at->second.tags_max);
      pool.holders.erase(at);
    }
    for (const auto& [device, held] : pool.holders) {
      if (device == 0 && held.tags_sum == 0) continue;
      v1::TagHolder* holder = out.add_holders();
      holder->set_waiter_device(std::get<0>(key));
      holder->set_set(std::get<1>(key));
      holder->set_kind(static_cast<v1::TagKind>(std::get<2>(key)));
      holder->set_reserved(std::get<3>(key));
      holder->set_holder_device(device);
      holder->set_tags_sum(held.tags_sum);
      holder->set_tags_max(held.tags_max);
      holder->set_samples(pool.samples);
      holder->set_nr_tags_sum(pool.nr_tags_sum);
    }
  }
  if (open_waits_.has_value()) out.set_open_waits(*open_waits_);
  out.set_source(source_);
  *this = TagWaitSums();
  return out;
}

}  // namespace fleetblame::aggregator
