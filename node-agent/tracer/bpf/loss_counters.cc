// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/loss_counters.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <utility>

#include "bpf/fleetblame_abi.h"
// The skeleton uses the types above.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/tracer/bpf/loader.h"

namespace fleetblame::agent {

LossCounters::LossCounters(const LoadedPrograms* programs)
    : programs_(programs), seen_(FB_COUNTER_COUNT, 0), own_(FB_COUNTER_COUNT, 0) {}

uint64_t LossCounters::Read(uint32_t counter) const {
  static const int kCpus = std::max(1, libbpf_num_possible_cpus());
  std::vector<uint64_t> values(kCpus);
  const int fd = bpf_map__fd(programs_->skeleton()->maps.counters);
  if (bpf_map_lookup_elem(fd, &counter, values.data()) != 0) return 0;
  uint64_t sum = 0;
  for (uint64_t value : values) sum += value;
  return sum;
}

void LossCounters::AddTo(std::map<std::string, uint64_t>* losses) {
  static constexpr const char* kNames[] = {
#define FB_COUNTER_NAME(name) #name,
      FB_COUNTERS(FB_COUNTER_NAME)
#undef FB_COUNTER_NAME
  };
  for (uint32_t i = 0; i < FB_COUNTER_COUNT; ++i) {
    const uint64_t now = Read(i);
    const uint64_t grown = now - std::exchange(seen_[i], now) + std::exchange(own_[i], 0);
    // These two tell what tracing costs; nothing is lost by them.
    if (i == FB_COUNTER_stack_walks || i == FB_COUNTER_stack_uncached) continue;
    (*losses)[kNames[i]] = grown;
  }
  const uint64_t missed = programs_->MissedHooks();
  (*losses)["hooks_missed"] = missed - std::exchange(missed_seen_, missed);
}

}  // namespace fleetblame::agent
