// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/bio_table.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kBioBatch = 512;

}  // namespace

absl::Status BioTable::Start() {
  const uint32_t buckets = skeleton_->rodata->config.bio_buckets;
  if (buckets == 0) return absl::OkStatus();
  auto mapped = MappedArray<fb_bio_bucket>::Map(bpf_map__fd(skeleton_->maps.bio_buckets), buckets);
  if (!mapped.ok()) return mapped.status();
  buckets_ = *std::move(mapped);
  return absl::OkStatus();
}

void BioTable::Visit(const std::function<void(const fb_origin&)>& visit) {
  Remove(
      [&](const fb_origin& origin) {
        visit(origin);
        return false;
      },
      [](const fb_origin&) {});
}

void BioTable::Remove(const std::function<bool(const fb_origin&)>& match,
                      const std::function<void(const fb_origin&)>& removed) {
  RemoveFromSets(match, removed);
  RemoveSpilled(match, removed);
}

void BioTable::RemoveFromSets(const std::function<bool(const fb_origin&)>& match,
                              const std::function<void(const fb_origin&)>& removed) {
  const int fd = bpf_map__fd(skeleton_->maps.origins);
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (uint32_t way = 0; way < FB_BIO_WAYS; ++way) {
      std::atomic_ref<fb_u64> bio(buckets_[bucket].bio[way]);
      fb_u64 address = bio.load();
      if (address == 0) continue;
      const uint32_t place = bucket * FB_BIO_WAYS + way;
      fb_origin origin{};
      // Without a device: just taken, not yet filled in.
      if (bpf_map_lookup_elem(fd, &place, &origin) != 0 || origin.dev == 0) continue;
      if (!match(origin)) continue;
      fb_origin now{};
      if (bpf_map_lookup_elem(fd, &place, &now) != 0 || now.queue_ns != origin.queue_ns) continue;
      if (bio.compare_exchange_strong(address, 0)) removed(origin);
    }
  }
}

void BioTable::RemoveSpilled(const std::function<bool(const fb_origin&)>& match,
                             const std::function<void(const fb_origin&)>& removed) {
  const int fd = bpf_map__fd(skeleton_->maps.bios);
  std::vector<std::pair<uint64_t, fb_origin>> matching;
  ReadWholeMap<uint64_t, fb_origin>(fd, kBioBatch,
                                    [&](const uint64_t& key, const fb_origin& origin) {
                                      if (match(origin)) matching.emplace_back(key, origin);
                                    })
      .IgnoreError();
  for (const auto& [key, origin] : matching) {
    fb_origin now{};
    if (bpf_map_lookup_elem(fd, &key, &now) != 0 || now.queue_ns != origin.queue_ns) continue;
    if (bpf_map_delete_elem(fd, &key) == 0) removed(origin);
  }
}

}  // namespace fleetblame::agent
