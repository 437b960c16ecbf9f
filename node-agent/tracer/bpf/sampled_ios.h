// SPDX-License-Identifier: Apache-2.0
//
// The samples of a window by disk and kind, and what was skipped beside them; with both,
// charges what was skipped (skipped_ios.h). The samples of the last window that had any are kept
// for a while: when a burst is over, the next sample may be long in coming.
//
// Threading: one thread.
// Units: `_ns` of boot time. Counts are since the tracer started.
#ifndef NODE_AGENT_TRACER_BPF_SAMPLED_IOS_H_
#define NODE_AGENT_TRACER_BPF_SAMPLED_IOS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "node-agent/tracer/bpf/skipped_ios.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

class SampledIos {
 public:
  // `kept_ns`: how long after its window a sample may be used; so long its ids must mean the same.
  explicit SampledIos(uint64_t kept_ns) : kept_ns_(kept_ns) {}

  // A sample of this window.
  void Add(SkippedKind kind, Sample sample);

  // What goes to each sample of what was skipped of a disk and kind since the last call; `skipped`
  // counts from the start. Adds to `lost` where no sample says whose it was.
  std::vector<Sample> Charge(DeviceNumber device, SkippedKind kind, const SkippedIos& skipped,
                             uint64_t now_ns, std::vector<Row>* lost);

  void EndWindow(uint64_t now_ns);

 private:
  using Key = std::pair<DeviceNumber, SkippedKind>;
  struct Kept {
    uint64_t window_end_ns = 0;
    std::vector<Sample> samples;
  };

  const uint64_t kept_ns_;
  std::map<Key, SkippedIos> seen_;
  std::map<Key, std::vector<Sample>> samples_;  // of this window
  std::map<Key, Kept> last_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_SAMPLED_IOS_H_
