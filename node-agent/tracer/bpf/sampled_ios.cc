// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/sampled_ios.h"

#include <iterator>

#include "node-agent/tracer/bpf/kernel_rows.h"

namespace fleetblame::agent {

void SampledIos::Add(const Row& row, uint64_t stands_for) {
  samples_[{row.key.device, row.key.operation}].push_back({row, stands_for});
}

void SampledIos::Charge(DeviceNumber device, Operation direction, uint32_t cell,
                        const SkippedIos& skipped, uint64_t now_ns, std::vector<Row>* rows,
                        std::map<std::string, uint64_t>* losses) {
  const SkippedIos seen = std::exchange(seen_[cell], skipped);
  const SkippedIos grown{.ios = skipped.ios - seen.ios, .bytes = skipped.bytes - seen.bytes};
  const Key key(device, direction);
  if (auto fresh = samples_.find(key); fresh != samples_.end())
    last_[key] = {.window_end_ns = now_ns, .samples = std::move(fresh->second)};
  if (grown.bytes == 0 && grown.ios == 0) return;
  (*losses)["ios_estimated"] += grown.ios;
  std::vector<Row> charged =
      ChargeSkipped(last_[key].samples, grown, &(*losses)["ios_estimated_variance"]);
  if (charged.empty()) {
    AddLost(device, direction, {.ios = grown.ios, .bytes = grown.bytes}, rows);
  }
  std::move(charged.begin(), charged.end(), std::back_inserter(*rows));
}

void SampledIos::EndWindow(uint64_t now_ns) {
  samples_.clear();
  std::erase_if(last_,
                [&](const auto& entry) { return entry.second.window_end_ns + kept_ns_ < now_ns; });
}

}  // namespace fleetblame::agent
