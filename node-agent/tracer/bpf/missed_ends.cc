// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/missed_ends.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>

// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/host/clocks.h"
#include "node-agent/tracer/bpf/disks.h"
#include "node-agent/tracer/bpf/kernel_rows.h"
#include "node-agent/tracer/bpf/table_ids.h"

namespace fleetblame::agent {
namespace {

constexpr uint64_t kLongestSoftirqNs = 100'000'000;

}  // namespace

uint64_t NewestWithin(std::vector<std::pair<uint64_t, uint64_t>> ios, int64_t allowed_bytes) {
  std::sort(ios.begin(), ios.end());
  uint64_t newest = 0;
  for (const auto& [issued, bytes] : ios) {
    allowed_bytes -= static_cast<int64_t>(bytes);
    if (allowed_bytes < 0) break;
    newest = issued;
  }
  return newest;
}

// "Idle" leaves out what the driver has given back and a softirq has not finished yet; so only what
// is older than any softirq waits, the oldest first, and no more than the kernel counted and we did
// not.
void MissedEnds::Find(DeviceNumber device, WatchedDisk* disk, const Add& add) {
  const uint64_t before = BootTimeNs() - kLongestSoftirqNs;
  if (!disk->reader.IsIdle()) return;
  const uint32_t dev = PackDevice(device);
  std::vector<std::pair<uint64_t, uint64_t>> candidates;
  bios_->Visit([&](const fb_origin& origin) {
    if (origin.dev == dev && origin.issue_ns != 0 && origin.issue_ns < before) {
      candidates.emplace_back(origin.issue_ns, origin.bytes);
    }
  });
  const uint64_t newest = NewestWithin(std::move(candidates), disk->Deficit());
  bios_->Remove(
      [&](const fb_origin& origin) {
        return origin.dev == dev && origin.issue_ns != 0 && origin.issue_ns <= newest;
      },
      [&](const fb_origin& origin) {
        AddShares(origin, add);
        counters_->Count(FB_COUNTER_end_missed);
        const Operation direction = DirectionOf(static_cast<Operation>(origin.op));
        if (direction == Operation::kUnspecified) return;
        disk->DeficitOf(direction) -= origin.bytes;
      });
}

void MissedEnds::FindSkipped(DeviceNumber device, WatchedDisk* disk, std::vector<Row>* rows) {
  if (skeleton_->data->live.skipped == 0 || !disk->reader.IsIdle()) return;
  for (Operation direction : {Operation::kRead, Operation::kWrite}) {
    int64_t& missing = disk->DeficitOf(direction);
    if (missing <= 0) continue;
    AddLost(device, direction, {.bytes = static_cast<uint64_t>(std::exchange(missing, 0))}, rows);
  }
}

void MissedEnds::AddShares(const fb_origin& origin, const Add& add) const {
  for (uint32_t i = 0; i < std::min<uint32_t>(origin.shares, FB_SHARES); ++i) {
    fb_row values{};
    values.bytes = origin.share[i].bytes;
    if (values.bytes != 0) add(RowKeyOf(origin, origin.share[i]), values);
  }
}

fb_row_key MissedEnds::RowKeyOf(const fb_origin& origin, const fb_share& share) const {
  fb_row_key key{};
  key.issuer_stack = origin.issuer_stack;
  key.issuer_actor = origin.issuer_actor;
  key.dev = origin.dev;
  key.part = origin.part;
  key.top = origin.flags & FB_ORIGIN_BELOW ? origin.top : 0;
  key.file = origin.file;
  key.op = origin.op;
  key.confidence = share.confidence;
  key.reason = origin.reason;
  if (share.act != 0) {
    fb_act act{};
    uint32_t index = IdIndex(share.act);
    if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.acts), &index, &act) == 0 &&
        act.id == share.act) {
      key.dirtier_stack = act.key.stack;
      key.dirtier_actor = act.key.actor;
    } else {
      key.confidence = FB_CONF_LOST;
      key.dirtier_stack = FB_STACK_LOST;
    }
  } else if (share.confidence == FB_CONF_ISSUER) {
    key.dirtier_stack = origin.issuer_stack;
    key.dirtier_actor = origin.issuer_actor;
  }
  return key;
}

}  // namespace fleetblame::agent
