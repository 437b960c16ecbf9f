// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/reclaim.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/host/clocks.h"
#include "node-agent/tracer/bpf/table_ids.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kSweepBatch = 512;
constexpr size_t kSweepStep = 16384;
constexpr uint32_t kTtlWhenFullSeconds = 20;

uint32_t Epoch() { return BootTimeNs() / 1'000'000'000; }

absl::Status FillFreeIds(bpf_map* map, uint32_t first, uint32_t entries) {
  const int fd = bpf_map__fd(map);
  for (uint32_t id = first; id < entries; ++id) {
    if (bpf_map_update_elem(fd, nullptr, &id, BPF_ANY) != 0) {
      return absl::InternalError(
          absl::StrCat("fill ", bpf_map__name(map), ": ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

// Takes an entry out of the table by key and of that by number, and frees its place under a new
// generation.
template <typename Entry>
void Free(const Entry& entry, bpf_map* by_key, bpf_map* by_index, bpf_map* free_ids) {
  bpf_map_delete_elem(bpf_map__fd(by_key), &entry.key);
  const uint32_t index = IdIndex(entry.id);
  const uint32_t next = NextGeneration(entry.id);
  const Entry empty{};
  bpf_map_update_elem(bpf_map__fd(by_index), &index, &empty, BPF_ANY);
  bpf_map_update_elem(bpf_map__fd(free_ids), nullptr, &next, BPF_ANY);
}

}  // namespace

Reclaimer::Reclaimer(fleetblame_bpf* skeleton, const BpfTracerOptions& options, BioTable* bios,
                     LossCounters* counters)
    : skeleton_(skeleton),
      bios_(bios),
      counters_(counters),
      ttl_ns_(absl::ToInt64Nanoseconds(options.ttl)),
      ttl_seconds_(absl::ToInt64Seconds(options.ttl)),
      max_stacks_(options.max_stacks),
      max_actors_(options.max_actors),
      max_acts_(options.max_acts),
      max_inodes_(options.max_inodes) {}

absl::Status Reclaimer::HandOutIds() {
  auto& maps = skeleton_->maps;
  absl::Status status = FillFreeIds(maps.free_stacks, FB_STACK_FIRST, max_stacks_);
  if (status.ok()) status = FillFreeIds(maps.free_actors, 1, max_actors_);
  if (status.ok()) status = FillFreeIds(maps.free_acts, 1, max_acts_);
  if (status.ok()) status = FillFreeIds(maps.free_files, 1, max_inodes_);
  return status;
}

void Reclaimer::Sweep() {
  SweepPages();
  SweepInodes();
  const uint64_t now = BootTimeNs();
  const uint64_t pause = ttl_ns_ / 2;
  if (now - last_bio_sweep_ns_ >= pause) {
    last_bio_sweep_ns_ = now;
    SweepBios();
  }
  if (now - last_act_sweep_ns_ >= pause) {
    last_act_sweep_ns_ = now;
    SweepActs();
  }
}

void Reclaimer::SweepPages() {
  const int fd = bpf_map__fd(skeleton_->maps.pages);
  const uint32_t now = Epoch();
  std::vector<fb_page_key> old;
  bool finished = false;
  absl::Status status =
      WalkMap<fb_page_key, fb_page_group>(fd, kSweepBatch, kSweepStep, &pages_cursor_, &finished,
                                          [&](const fb_page_key& key, const fb_page_group& group) {
                                            if (group.epoch + ttl_seconds_ < now)
                                              old.push_back(key);
                                          });
  status.IgnoreError();  // the next sweep starts anew
  for (const fb_page_key& key : old) bpf_map_delete_elem(fd, &key);
}

void Reclaimer::SweepInodes() {
  const int fd = bpf_map__fd(skeleton_->maps.inodes);
  const int free_fd = bpf_map__fd(skeleton_->maps.free_files);
  const uint32_t now = Epoch();
  // A storm of new files fills the table faster than the ttl empties it.
  const bool full = counters_->HasGrown(FB_COUNTER_inode_nomem);
  const uint32_t ttl = full ? std::min(ttl_seconds_, kTtlWhenFullSeconds) : ttl_seconds_;
  std::vector<std::pair<fb_inode_key, uint32_t>> old;
  bool finished = false;
  absl::Status status = WalkMap<fb_inode_key, fb_inode>(
      fd, kSweepBatch, full ? max_inodes_ : kSweepStep, &inodes_cursor_, &finished,
      [&](const fb_inode_key& key, const fb_inode& inode) {
        if (inode.epoch + ttl < now) old.emplace_back(key, inode.file);
      });
  status.IgnoreError();
  for (const auto& [key, file] : old) {
    if (bpf_map_delete_elem(fd, &key) != 0) continue;
    if (file != 0) bpf_map_update_elem(free_fd, nullptr, &file, BPF_ANY);
  }
}

// Bios that end without ever becoming a request (an error, a retry without waiting, a stacking
// driver) leave their entry behind. Those that were issued are left to MissedEnds.
void Reclaimer::SweepBios() {
  const uint64_t now = BootTimeNs();
  bios_->Remove(
      [&](const fb_origin& origin) {
        return origin.issue_ns == 0 && origin.queue_ns + ttl_ns_ < now;
      },
      [&](const fb_origin&) { counters_->Count(FB_COUNTER_bio_expired); });
}

// Acts and actors are kept as long as there is room: a page may wait for its IO much longer than
// any thread lives. Only when a table is more than half full, what was not used for the ttl goes.
void Reclaimer::SweepActs() {
  std::vector<bool> actor_in_use(max_actors_, false);
  if (ReclaimActs(&actor_in_use).ok()) ReclaimActors(actor_in_use);
}

// Marks the actors of the acts that stay.
absl::Status Reclaimer::ReclaimActs(std::vector<bool>* actor_in_use) {
  auto& maps = skeleton_->maps;
  const uint32_t now = Epoch();
  auto mark = [&](const fb_act& act) {
    const uint32_t index = IdIndex(act.key.actor);
    if (index < actor_in_use->size()) (*actor_in_use)[index] = true;
  };
  std::vector<fb_act> idle;
  size_t used = 0;
  absl::Status status = ReadWholeMap<uint32_t, fb_act>(bpf_map__fd(maps.acts), kSweepBatch,
                                                       [&](const uint32_t&, const fb_act& act) {
                                                         if (act.id == 0) return;
                                                         ++used;
                                                         if (act.epoch + ttl_seconds_ < now)
                                                           idle.push_back(act);
                                                         else
                                                           mark(act);
                                                       });
  if (!status.ok()) return status;
  const bool room = used <= max_acts_ / 2;
  for (const fb_act& act : idle) {
    if (room)
      mark(act);
    else
      Free(act, maps.act_ids, maps.acts, maps.free_acts);
  }
  return absl::OkStatus();
}

void Reclaimer::ReclaimActors(const std::vector<bool>& in_use) {
  auto& maps = skeleton_->maps;
  const uint32_t now = Epoch();
  std::vector<fb_actor> idle;
  size_t used = 0;
  absl::Status status = ReadWholeMap<uint32_t, fb_actor>(
      bpf_map__fd(maps.actors), kSweepBatch, [&](const uint32_t& index, const fb_actor& actor) {
        if (actor.id == 0) return;
        ++used;
        if (actor.epoch + ttl_seconds_ < now && !in_use[index]) idle.push_back(actor);
      });
  if (!status.ok() || used <= max_actors_ / 2) return;
  for (const fb_actor& actor : idle) Free(actor, maps.actor_ids, maps.actors, maps.free_actors);
}

}  // namespace fleetblame::agent
