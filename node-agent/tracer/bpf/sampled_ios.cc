// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/sampled_ios.h"

#include <utility>

#include "node-agent/tracer/bpf/kernel_rows.h"

namespace fleetblame::agent {

void SampledIos::Add(SkippedKind kind, Sample sample) {
  samples_[{sample.row.key.device, kind}].push_back(std::move(sample));
}

std::vector<Sample> SampledIos::Charge(DeviceNumber device, SkippedKind kind,
                                       const SkippedIos& skipped, uint64_t now_ns,
                                       std::vector<Row>* lost) {
  const Key key(device, kind);
  const SkippedIos seen = std::exchange(seen_[key], skipped);
  const SkippedIos grown{.ios = skipped.ios - seen.ios, .bytes = skipped.bytes - seen.bytes};
  if (auto fresh = samples_.find(key); fresh != samples_.end())
    last_[key] = {.window_end_ns = now_ns, .samples = std::move(fresh->second)};
  if (grown.bytes == 0 && grown.ios == 0) return {};
  std::vector<Sample> charged = ChargeSkipped(last_[key].samples, grown);
  if (charged.empty())
    AddLost(device, OperationOf(kind), {.ios = grown.ios, .bytes = grown.bytes}, lost);
  return charged;
}

void SampledIos::EndWindow(uint64_t now_ns) {
  samples_.clear();
  std::erase_if(last_,
                [&](const auto& entry) { return entry.second.window_end_ns + kept_ns_ < now_ns; });
}

}  // namespace fleetblame::agent
