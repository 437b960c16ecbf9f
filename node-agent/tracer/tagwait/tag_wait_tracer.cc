// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/tagwait/tag_wait_tracer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/tagwait_bpf.skel.h"
#include "node-agent/tracer/bpf/host_info.h"
#include "node-agent/tracer/bpf/map_io.h"
#include "node-agent/tracer/tagwait/tag_sysfs.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kBatch = 64;
// Entries that did not change for so many windows go when their table is half full.
constexpr uint32_t kIdleWindows = 6;
// The hook that ends a wait was skipped when a thread was woken this long ago and has no tag yet.
constexpr uint64_t kWokenNs = 5'000'000'000;
// A wait of this age is looked at more closely.
constexpr uint64_t kOldNs = 5'000'000'000;

uint64_t BootNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

uint32_t Major(uint32_t dev) { return dev >> 20; }
uint32_t Minor(uint32_t dev) { return dev & 0xfffff; }

// Threads are known by the numbers of the first namespace, which only a process there can check.
bool InFirstPidNamespace() {
  char name[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", name, sizeof(name) - 1);
  return size > 0 && std::strcmp(name, "pid:[4026531836]") == 0;
}

// Whether a thread is there and in an uninterruptible sleep, as one that waits for a tag is.
bool ThreadSleeps(uint32_t tid) {
  std::ifstream file(absl::StrCat("/proc/", tid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return false;
  // The state stands after the name, which may hold anything.
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && name_end + 2 < line.size() && line[name_end + 2] == 'D';
}

template <typename Map>
size_t Forget(int fd, uint32_t window, size_t limit, Map* entries) {
  if (entries->size() <= limit) return 0;
  size_t gone = 0;
  for (auto it = entries->begin(); it != entries->end();) {
    if (it->second.changed + kIdleWindows < window && bpf_map_delete_elem(fd, &it->first) == 0) {
      it = entries->erase(it);
      ++gone;
    } else {
      ++it;
    }
  }
  return gone;
}

}  // namespace

bool TagWaitTracer::RowLess::operator()(const fb_tag_key& a, const fb_tag_key& b) const {
  return std::memcmp(&a, &b, sizeof(a)) < 0;
}
bool TagWaitTracer::HolderLess::operator()(const fb_tag_holder_key& a,
                                           const fb_tag_holder_key& b) const {
  return std::memcmp(&a, &b, sizeof(a)) < 0;
}

TagWaitTracer::TagWaitTracer(std::unique_ptr<TagPrograms> programs)
    : programs_(std::move(programs)), counters_seen_(FB_TAG_COUNTER_COUNT, 0) {
  auto symbols = OpenSymbols();
  if (!symbols.ok()) return;
  for (const auto& [name, range] : FindFunctions(
           **symbols,
           {"prepare_to_wait_exclusive", "sbitmap_prepare_to_wait", "blk_mq_get_tag",
            "__blk_mq_alloc_requests", "__blk_mq_alloc_request", "blk_mq_get_new_requests",
            "blk_mq_get_request", "blk_mq_submit_bio", "__submit_bio", "__submit_bio_noacct",
            "__submit_bio_noacct_mq", "io_schedule", "schedule", "__schedule"})) {
    inner_functions_.emplace_back(range.first, range.last);
  }
}

absl::StatusOr<std::unique_ptr<TagWaitTracer>> TagWaitTracer::Create(
    const TagProgramOptions& options, const KernelBtf& kernel) {
  auto programs = TagPrograms::Load(options, kernel);
  if (!programs.ok()) return programs.status();
  return std::unique_ptr<TagWaitTracer>(new TagWaitTracer(*std::move(programs)));
}

std::string TagWaitTracer::Limitation() const {
  const std::string why = absl::StrJoin(programs_->refusals(), "; ");
  switch (source()) {
    case v1::TAG_WAIT_SOURCE_INFERRED:
      return absl::StrCat(
          "tag waits: seen by inference at sched_switch, which runs at every context switch: each "
          "sleep counts as one wait, waits that never slept are not seen (",
          why, ").");
    default:
      return "";  // the others see every wait
  }
}

size_t TagWaitTracer::InnerFrames(const uint64_t* addresses, size_t count) const {
  auto inner = [&](uint64_t address) {
    return std::any_of(inner_functions_.begin(), inner_functions_.end(), [&](const auto& range) {
      return address > range.first && address <= range.second;
    });
  };
  // Frames of the tracer itself lie inside of the first one that is known.
  size_t first = 0;
  while (first < count && first < 8 && !inner(addresses[first])) ++first;
  if (first == count || first == 8) return 0;
  size_t end = first;
  while (end < count && inner(addresses[end])) ++end;
  return end < count ? end : 0;
}

uint32_t TagWaitTracer::SetNumber(uint64_t address) {
  if (address == 0) return 0;
  auto [it, added] = set_numbers_.try_emplace(address, set_numbers_.size() + 1);
  return it->second;
}

v1::TagWaitRow TagWaitTracer::RowOf(const fb_tag_key& key) {
  v1::TagWaitRow row;
  row.set_device(key.dev);
  row.set_set(SetNumber(key.set));
  row.set_hctx(key.hctx);
  row.set_kind(static_cast<v1::TagKind>(key.kind));
  row.set_reserved(key.reserved_pool != 0);
  row.set_nr_tags(key.nr_tags);
  row.set_source(static_cast<v1::TagWaitSource>(key.source));
  row.set_intent(key.stack);
  row.set_actor(key.actor & FB_ID_INDEX_MASK);
  if (key.dev != 0) set_of_disk_[key.dev] = row.set();
  return row;
}

absl::Status TagWaitTracer::ReadRows(v1::TagWaits* out, std::set<uint32_t>* stacks,
                                     std::set<uint32_t>* actors) {
  const int fd = bpf_map__fd(programs_->skeleton()->maps.tag_rows);
  std::set<fb_tag_key, RowLess> visited;
  absl::Status status = ReadWholeMap<fb_tag_key, fb_tag_row>(
      fd, kBatch, [&](const fb_tag_key& key, const fb_tag_row& now) {
        if (!visited.insert(key).second) return;  // the walk may come by twice
        Seen<fb_tag_row>& seen = rows_[key];
        const fb_tag_row& old = seen.value;
        if (now.waits == old.waits && now.woke_at_once == old.woke_at_once &&
            now.rounds == old.rounds) {
          return;
        }
        v1::TagWaitRow* row = out->add_rows();
        *row = RowOf(key);
        row->set_waits(now.waits - old.waits);
        row->set_woke_at_once(now.woke_at_once - old.woke_at_once);
        row->set_rounds(now.rounds - old.rounds);
        row->set_wait_ns(now.wait_ns - old.wait_ns);
        const bool current = now.window == window_;
        row->set_max_wait_ns(current ? now.max_wait_ns : 0);
        row->set_ended_with_tag(now.ended[FB_TAG_END_TAG] - old.ended[FB_TAG_END_TAG]);
        row->set_ended_by_signal(now.ended[FB_TAG_END_SIGNAL] - old.ended[FB_TAG_END_SIGNAL]);
        row->set_ended_by_removal(now.ended[FB_TAG_END_REMOVAL] - old.ended[FB_TAG_END_REMOVAL]);
        row->set_ended_by_freeze(now.ended[FB_TAG_END_FREEZE] - old.ended[FB_TAG_END_FREEZE]);
        row->set_ended_unseen(now.ended[FB_TAG_END_UNSEEN] - old.ended[FB_TAG_END_UNSEEN]);
        row->set_active_sum(now.active_sum - old.active_sum);
        row->set_active_samples(now.active_samples - old.active_samples);
        row->set_active_max(current ? now.active_max : 0);
        for (uint32_t i = 0; i < FB_HIST_BUCKETS; ++i) {
          const uint32_t grown = now.wait[i] - old.wait[i];
          if (grown == 0) continue;
          row->mutable_wait()->add_buckets(i);
          row->mutable_wait()->add_counts(grown);
        }
        stacks->insert(key.stack);
        actors->insert(key.actor);
        seen.value = now;
        seen.changed = window_;
      });
  Forget(fd, window_, bpf_map__max_entries(programs_->skeleton()->maps.tag_rows) / 2, &rows_);
  return status;
}

absl::Status TagWaitTracer::ReadHolders(v1::TagWaits* out) {
  const int fd = bpf_map__fd(programs_->skeleton()->maps.tag_holders);
  std::set<fb_tag_holder_key, HolderLess> visited;
  absl::Status status = ReadWholeMap<fb_tag_holder_key, fb_tag_holder>(
      fd, kBatch, [&](const fb_tag_holder_key& key, const fb_tag_holder& now) {
        if (!visited.insert(key).second) return;
        Seen<fb_tag_holder>& seen = holders_[key];
        const fb_tag_holder& old = seen.value;
        if (now.samples == old.samples) return;
        v1::TagHolder* holder = out->add_holders();
        holder->set_waiter_device(key.waiter);
        holder->set_set(SetNumber(key.set));
        holder->set_kind(static_cast<v1::TagKind>(key.kind));
        holder->set_reserved(key.reserved_pool != 0);
        holder->set_holder_device(key.holder);
        holder->set_tags_sum(now.tags_sum - old.tags_sum);
        holder->set_samples(now.samples - old.samples);
        holder->set_tags_max(now.window == window_ ? now.tags_max : 0);
        holder->set_nr_tags_sum(now.nr_tags_sum - old.nr_tags_sum);
        if (key.holder != 0) set_of_disk_[key.holder] = holder->set();
        seen.value = now;
        seen.changed = window_;
      });
  Forget(fd, window_, bpf_map__max_entries(programs_->skeleton()->maps.tag_holders) / 2, &holders_);
  // A disk that came or went within the window held nothing the rest of the time.
  std::map<std::tuple<uint32_t, uint32_t, int, bool>, uint64_t> samples;
  auto pool = [](const v1::TagHolder& h) {
    return std::tuple(h.waiter_device(), h.set(), static_cast<int>(h.kind()), h.reserved());
  };
  for (const v1::TagHolder& holder : out->holders()) {
    uint64_t& most = samples[pool(holder)];
    most = std::max(most, holder.samples());
  }
  for (v1::TagHolder& holder : *out->mutable_holders()) {
    const uint64_t most = samples[pool(holder)];
    if (holder.samples() == most) continue;
    holder.set_nr_tags_sum(holder.nr_tags_sum() * most / holder.samples());
    holder.set_samples(most);
  }
  return status;
}

// Waits whose end was missed are closed here, so that nothing stays open for good.
absl::Status TagWaitTracer::ReadOpenWaits(v1::TagWaits* out, std::set<uint32_t>* stacks,
                                          std::set<uint32_t>* actors) {
  static const bool kCanSeeThreads = InFirstPidNamespace();
  const int fd = bpf_map__fd(programs_->skeleton()->maps.tag_waits);
  const uint64_t now = BootNow();
  uint64_t open = 0;
  std::vector<std::pair<uint32_t, fb_tag_wait>> ended;
  absl::Status status = ReadWholeMap<uint32_t, fb_tag_wait>(
      fd, kBatch, [&](const uint32_t& tid, const fb_tag_wait& wait) {
        const bool woken = wait.woken != 0 && wait.woken_ns + kWokenNs < now;
        const bool gone = kCanSeeThreads && wait.begin_ns + kOldNs < now && !ThreadSleeps(tid);
        if (woken || gone) {
          ended.emplace_back(tid, wait);
        } else {
          ++open;
        }
      });
  for (const auto& [tid, wait] : ended) {
    fb_tag_wait again{};
    // It may have ended, or another begun, since.
    if (bpf_map_lookup_elem(fd, &tid, &again) != 0 || again.begin_ns != wait.begin_ns ||
        again.rounds != wait.rounds || bpf_map_delete_elem(fd, &tid) != 0) {
      continue;
    }
    if (source() == v1::TAG_WAIT_SOURCE_INFERRED) {
      __atomic_fetch_sub(&programs_->skeleton()->data->tag_live.open_inferred, 1, __ATOMIC_RELAXED);
    }
    v1::TagWaitRow row = RowOf(wait.key);
    row.set_waits(1);
    row.set_rounds(wait.rounds);
    row.set_ended_unseen(1);
    stacks->insert(wait.key.stack);
    actors->insert(wait.key.actor);
    *out->add_rows() = row;
  }
  if (source() != v1::TAG_WAIT_SOURCE_INFERRED) out->set_open_waits(open);
  return status;
}

absl::Status TagWaitTracer::ReadSets(v1::TagWaits* out) {
  std::map<uint32_t, fb_tag_set> known;
  absl::Status status = ReadWholeMap<uint64_t, fb_tag_set>(
      bpf_map__fd(programs_->skeleton()->maps.tag_sets), kBatch,
      [&](const uint64_t& address, const fb_tag_set& set) { known[SetNumber(address)] = set; });
  const uint32_t host_wide = programs_->skeleton()->rodata->tag_config.host_wide;
  std::set<uint32_t> named;
  for (const v1::TagWaitRow& row : out->rows()) named.insert(row.set());
  for (const v1::TagHolder& holder : out->holders()) named.insert(holder.set());
  for (uint32_t number : named) {
    auto it = known.find(number);
    if (number == 0 || it == known.end()) continue;
    v1::TagSet* set = out->add_sets();
    set->set_set(number);
    set->set_host_wide((it->second.flags & host_wide) != 0);
    set->set_shared(it->second.disks > 1);
    set->set_queue_depth(it->second.queue_depth);
    set->set_reserved_tags(it->second.reserved_tags);
    set->set_hw_queues(it->second.hw_queues);
    if (it->second.dev != 0) {
      ReadController("/sys", Major(it->second.dev), Minor(it->second.dev), set);
    }
  }
  return status;
}

void TagWaitTracer::ReadDisks(v1::TagWaits* out) {
  for (const auto& [dev, set] : set_of_disk_) {
    v1::TagDisk* disk = out->add_disks();
    disk->set_device(dev);
    disk->set_set(set);
    ReadQueue("/sys", Major(dev), Minor(dev), disk);
  }
  set_of_disk_.clear();
}

void TagWaitTracer::ReadCounters(std::map<std::string, uint64_t>* losses) {
  static constexpr const char* kNames[] = {
#define FB_COUNTER_NAME(name) #name,
      FB_TAG_COUNTERS(FB_COUNTER_NAME)
#undef FB_COUNTER_NAME
  };
  std::vector<uint64_t> values(std::max(1, libbpf_num_possible_cpus()));
  for (uint32_t i = 0; i < FB_TAG_COUNTER_COUNT; ++i) {
    if (bpf_map_lookup_elem(bpf_map__fd(programs_->skeleton()->maps.tag_counters), &i,
                            values.data()) != 0) {
      continue;
    }
    uint64_t sum = 0;
    for (uint64_t value : values) sum += value;
    (*losses)[kNames[i]] += sum - counters_seen_[i];
    counters_seen_[i] = sum;
  }
  const uint64_t missed = programs_->Missed();
  (*losses)["tagwait_hooks_missed"] += missed - missed_seen_;
  missed_seen_ = missed;
}

absl::Status TagWaitTracer::Collect(v1::TagWaits* out, std::map<std::string, uint64_t>* losses,
                                    std::set<uint32_t>* stacks, std::set<uint32_t>* actors) {
  out->set_source(source());
  absl::Status status = ReadRows(out, stacks, actors);
  if (status.ok()) status = ReadHolders(out);
  if (status.ok()) status = ReadOpenWaits(out, stacks, actors);
  if (status.ok()) status = ReadSets(out);
  ReadDisks(out);
  ReadCounters(losses);
  auto* data = programs_->skeleton()->data;
  data->tag_live.window = ++window_;
  data->live.epoch = BootNow() / 1000000000ull;
  return status;
}

}  // namespace fleetblame::agent
