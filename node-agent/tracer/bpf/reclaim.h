// SPDX-License-Identifier: Apache-2.0
//
// Gives places in the kernel side's tables back: an entry that nothing has used for the ttl goes,
// and its id returns to the queue of free ids from which the programs take new ones. When an entry
// was last used is its epoch.
//
// Threading: one thread; the kernel side uses the tables at any time.
// Units: an epoch is seconds of boot time.
// Errors: INTERNAL when ids cannot be handed out. A sweep that fails is made again in the next
// window.
#ifndef NODE_AGENT_TRACER_BPF_RECLAIM_H_
#define NODE_AGENT_TRACER_BPF_RECLAIM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/bio_table.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/bpf/loss_counters.h"
#include "node-agent/tracer/bpf/map_io.h"

struct fleetblame_bpf;

namespace fleetblame::agent {

class Reclaimer {
 public:
  Reclaimer(fleetblame_bpf* skeleton, const BpfTracerOptions& options, BioTable* bios,
            LossCounters* counters);

  // Fills the queues of free ids, once.
  absl::Status HandOutIds();

  // Once a window. Large tables are swept a part at a time, the others every half ttl.
  void Sweep();

 private:
  void SweepPages();
  void SweepInodes();
  void SweepBios();
  void SweepActs();
  absl::Status ReclaimActs(std::vector<bool>* actor_in_use);
  void ReclaimActors(const std::vector<bool>& in_use);

  fleetblame_bpf* const skeleton_;
  BioTable* const bios_;
  LossCounters* const counters_;
  const uint64_t ttl_ns_;
  const uint32_t ttl_seconds_;
  const uint32_t max_stacks_;
  const uint32_t max_actors_;
  const uint32_t max_acts_;
  const uint32_t max_inodes_;

  MapCursor pages_cursor_;
  MapCursor inodes_cursor_;
  uint64_t last_bio_sweep_ns_ = 0;
  uint64_t last_act_sweep_ns_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_RECLAIM_H_
