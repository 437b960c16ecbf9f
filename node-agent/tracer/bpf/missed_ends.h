// SPDX-License-Identifier: Apache-2.0
//
// IOs whose end the kernel did not tell us: their bytes are found by what the kernel counted more
// than we did, and become rows.
//
// Threading: one thread. Units: `_ns` of boot time.
#ifndef NODE_AGENT_TRACER_BPF_MISSED_ENDS_H_
#define NODE_AGENT_TRACER_BPF_MISSED_ENDS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/bio_table.h"
#include "node-agent/tracer/bpf/loss_counters.h"
#include "node-agent/tracer/bpf/watched_disk.h"
#include "node-agent/tracer/tracer.h"

struct fleetblame_bpf;

namespace fleetblame::agent {

class MissedEnds {
 public:
  using Add = std::function<void(const fb_row_key&, const fb_row&)>;

  MissedEnds(fleetblame_bpf* skeleton, BioTable* bios, LossCounters* counters)
      : skeleton_(skeleton), bios_(bios), counters_(counters) {}

  // An IO whose end was not told stays in the table. Once its disk is idle, it ended, and the
  // kernel counted it. Its bytes and who caused them are known; how long it took is not, so the IO
  // itself counts as lost.
  void Find(DeviceNumber device, WatchedDisk* disk, const Add& add);

  // Of an IO that was skipped nothing is in the table. What is missing of a disk that did nothing
  // for a whole window are the bytes of such IOs.
  void FindSkipped(DeviceNumber device, WatchedDisk* disk, std::vector<Row>* rows);

 private:
  fb_row_key RowKeyOf(const fb_origin& origin, const fb_share& share) const;
  void AddShares(const fb_origin& origin, const Add& add) const;

  fleetblame_bpf* const skeleton_;
  BioTable* const bios_;
  LossCounters* const counters_;
};

// Of IOs as (when issued, bytes): up to which time all of them together are no more than
// `allowed_bytes`, the oldest first. 0 = not even the first.
uint64_t NewestWithin(std::vector<std::pair<uint64_t, uint64_t>> ios, int64_t allowed_bytes);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_MISSED_ENDS_H_
