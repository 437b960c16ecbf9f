// SPDX-License-Identifier: Apache-2.0
#include "common/tag_waits.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/histogram.h"

namespace fleetblame {
namespace {

// -1 stands for a number that is absent.
auto RowKey(const v1::TagWaitRow& row) {
  return std::tuple(row.device(), row.set(), row.has_hctx() ? int64_t{row.hctx()} : int64_t{-1},
                    static_cast<int>(row.kind()), row.reserved(),
                    row.has_nr_tags() ? int64_t{row.nr_tags()} : int64_t{-1},
                    static_cast<int>(row.source()), row.intent(), row.actor());
}

auto HolderKey(const v1::TagHolder& holder) {
  return std::tuple(holder.waiter_device(), holder.set(), static_cast<int>(holder.kind()),
                    holder.reserved(), holder.holder_device());
}

void MergeHistogram(const v1::Histogram& from, v1::Histogram* into) {
  std::map<uint32_t, uint64_t> sum;
  for (const v1::Histogram* histogram : {&from, static_cast<const v1::Histogram*>(into)}) {
    const int size = std::min(histogram->buckets_size(), histogram->counts_size());
    for (int i = 0; i < size; ++i) sum[histogram->buckets(i)] += histogram->counts(i);
  }
  into->Clear();
  for (const auto& [bucket, count] : sum) {
    into->add_buckets(bucket);
    into->add_counts(count);
  }
}

void AddRow(const v1::TagWaitRow& from, v1::TagWaitRow* into) {
  into->set_waits(into->waits() + from.waits());
  into->set_woke_at_once(into->woke_at_once() + from.woke_at_once());
  into->set_rounds(into->rounds() + from.rounds());
  into->set_wait_ns(into->wait_ns() + from.wait_ns());
  into->set_max_wait_ns(std::max(into->max_wait_ns(), from.max_wait_ns()));
  if (from.has_wait()) MergeHistogram(from.wait(), into->mutable_wait());
  into->set_ended_with_tag(into->ended_with_tag() + from.ended_with_tag());
  into->set_ended_by_signal(into->ended_by_signal() + from.ended_by_signal());
  into->set_ended_by_removal(into->ended_by_removal() + from.ended_by_removal());
  into->set_ended_by_freeze(into->ended_by_freeze() + from.ended_by_freeze());
  into->set_ended_unseen(into->ended_unseen() + from.ended_unseen());
  into->set_active_sum(into->active_sum() + from.active_sum());
  into->set_active_samples(into->active_samples() + from.active_samples());
  into->set_active_max(std::max(into->active_max(), from.active_max()));
}

void AddHolder(const v1::TagHolder& from, v1::TagHolder* into) {
  into->set_tags_sum(into->tags_sum() + from.tags_sum());
  into->set_samples(into->samples() + from.samples());
  into->set_tags_max(std::max(into->tags_max(), from.tags_max()));
  into->set_nr_tags_sum(into->nr_tags_sum() + from.nr_tags_sum());
}

// A disk that took part in some of the windows only held nothing in the others.
void EqualizeSamples(v1::TagWaits* waits) {
  auto pool = [](const v1::TagHolder& holder) {
    return std::tuple(holder.waiter_device(), holder.set(), static_cast<int>(holder.kind()),
                      holder.reserved());
  };
  std::map<decltype(pool(v1::TagHolder())), std::pair<uint64_t, uint64_t>> most;
  for (const v1::TagHolder& holder : waits->holders()) {
    auto& [samples, tags] = most[pool(holder)];
    if (holder.samples() > samples) {
      samples = holder.samples();
      tags = holder.nr_tags_sum();
    }
  }
  for (v1::TagHolder& holder : *waits->mutable_holders()) {
    const auto& [samples, tags] = most[pool(holder)];
    holder.set_samples(samples);
    holder.set_nr_tags_sum(tags);
  }
}

// Sums messages of equal key; the first keeps its place.
template <typename Message, typename Key, typename Add>
void SumEqual(google::protobuf::RepeatedPtrField<Message>* messages, Key key, Add add) {
  std::map<decltype(key(Message())), int> places;
  int kept = 0;
  for (int i = 0; i < messages->size(); ++i) {
    auto [place, fresh] = places.emplace(key(messages->Get(i)), kept);
    if (fresh) {
      if (i != kept) messages->SwapElements(i, kept);
      ++kept;
    } else {
      add(messages->Get(i), messages->Mutable(place->second));
    }
  }
  messages->DeleteSubrange(kept, messages->size() - kept);
}

// Sets and disks that neither rows nor holders name any more.
void DropUnnamed(v1::TagWaits* waits) {
  std::set<uint32_t> sets;
  std::set<uint32_t> disks;
  for (const v1::TagWaitRow& row : waits->rows()) {
    sets.insert(row.set());
    disks.insert(row.device());
  }
  for (const v1::TagHolder& holder : waits->holders()) {
    sets.insert(holder.set());
    disks.insert(holder.holder_device());
  }
  auto& all_sets = *waits->mutable_sets();
  all_sets.erase(std::remove_if(all_sets.begin(), all_sets.end(),
                                [&](const auto& set) { return !sets.contains(set.set()); }),
                 all_sets.end());
  auto& all_disks = *waits->mutable_disks();
  all_disks.erase(std::remove_if(all_disks.begin(), all_disks.end(),
                                 [&](const auto& disk) { return !disks.contains(disk.device()); }),
                  all_disks.end());
}

template <typename Messages>
uint64_t Truncate(int limit, Messages* messages) {
  const int over = messages->size() - limit;
  if (over <= 0) return 0;
  messages->DeleteSubrange(limit, over);
  return over;
}

absl::Status CheckHistogram(const v1::Histogram& histogram) {
  bool good = histogram.buckets_size() == histogram.counts_size();
  for (int i = 0; good && i < histogram.buckets_size(); ++i) {
    good = histogram.buckets(i) < kHistogramBuckets &&
           (i == 0 || histogram.buckets(i) > histogram.buckets(i - 1));
  }
  return good ? absl::OkStatus() : absl::InvalidArgumentError("tag waits: impossible histogram");
}

}  // namespace

bool IsEmpty(const v1::TagWaits& waits) {
  return waits.rows_size() == 0 && waits.holders_size() == 0 && waits.open_waits() == 0;
}

void MergeTagWaits(const v1::TagWaits& from, v1::TagWaits* into) {
  into->mutable_rows()->MergeFrom(from.rows());
  SumEqual(into->mutable_rows(), RowKey, AddRow);
  into->mutable_holders()->MergeFrom(from.holders());
  SumEqual(into->mutable_holders(), HolderKey, AddHolder);
  EqualizeSamples(into);
  into->mutable_sets()->MergeFrom(from.sets());
  SumEqual(
      into->mutable_sets(), [](const v1::TagSet& set) { return set.set(); },
      [](const v1::TagSet& set, v1::TagSet* old) { *old = v1::TagSet(set); });
  into->mutable_disks()->MergeFrom(from.disks());
  SumEqual(
      into->mutable_disks(), [](const v1::TagDisk& disk) { return disk.device(); },
      [](const v1::TagDisk& disk, v1::TagDisk* old) { *old = v1::TagDisk(disk); });
  if (from.has_open_waits()) {
    into->set_open_waits(from.open_waits());
  } else {
    into->clear_open_waits();
  }
  into->set_source(from.source());
}

void KeepWaiters(const std::function<bool(uint32_t device)>& wanted, v1::TagWaits* waits) {
  auto& rows = *waits->mutable_rows();
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [&](const auto& row) { return !wanted(row.device()); }),
             rows.end());
  auto& holders = *waits->mutable_holders();
  holders.erase(std::remove_if(holders.begin(), holders.end(),
                               [&](const auto& h) { return !wanted(h.waiter_device()); }),
                holders.end());
  DropUnnamed(waits);
}

TagWaitLosses LimitTagWaits(const TagWaitLimits& limits, v1::TagWaits* waits) {
  TagWaitLosses losses;
  auto longest_first = [&] {
    std::stable_sort(
        waits->mutable_rows()->begin(), waits->mutable_rows()->end(),
        [](const v1::TagWaitRow& a, const v1::TagWaitRow& b) { return a.wait_ns() > b.wait_ns(); });
    std::stable_sort(
        waits->mutable_holders()->begin(), waits->mutable_holders()->end(),
        [](const v1::TagHolder& a, const v1::TagHolder& b) { return a.tags_sum() > b.tags_sum(); });
  };
  auto too_large = [&] { return waits->ByteSizeLong() > limits.max_bytes; };
  if (waits->rows_size() > limits.max_rows || too_large()) {
    longest_first();
    const int keep = std::min(limits.max_rows, waits->rows_size()) / 2;
    for (int i = keep; i < waits->rows_size(); ++i) {
      v1::TagWaitRow* row = waits->mutable_rows(i);
      if (row->intent() == 0 && row->actor() == 0) continue;
      row->set_intent(0);
      row->set_actor(0);
      ++losses.folded;
    }
    SumEqual(waits->mutable_rows(), RowKey, AddRow);
    longest_first();
  }
  losses.dropped += Truncate(limits.max_rows, waits->mutable_rows());
  losses.dropped += Truncate(limits.max_holders, waits->mutable_holders());
  while (too_large() && waits->rows_size() + waits->holders_size() > 0) {
    losses.dropped += Truncate(waits->rows_size() / 2, waits->mutable_rows());
    losses.dropped += Truncate(waits->holders_size() / 2, waits->mutable_holders());
    DropUnnamed(waits);
  }
  Truncate(limits.max_disks, waits->mutable_disks());
  Truncate(limits.max_sets, waits->mutable_sets());
  return losses;
}

absl::Status CheckTagWaits(const v1::TagWaits& waits, const TagWaitLimits& limits) {
  if (waits.rows_size() > limits.max_rows || waits.holders_size() > limits.max_holders ||
      waits.disks_size() > limits.max_disks || waits.sets_size() > limits.max_sets) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tag waits: ", waits.rows_size(), " rows, ", waits.holders_size(), " holders, ",
        waits.disks_size(), " disks, ", waits.sets_size(), " sets are more than is allowed"));
  }
  for (const v1::TagSet& set : waits.sets()) {
    if (set.set() == 0) return absl::InvalidArgumentError("tag waits: a set without number");
  }
  for (const v1::TagWaitRow& row : waits.rows()) {
    if (absl::Status status = CheckHistogram(row.wait()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace fleetblame
