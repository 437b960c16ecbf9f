// SPDX-License-Identifier: Apache-2.0
#include "cli/host_devices.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "common/saturating.h"

namespace fleetblame::cli {
namespace {

void AddTo(std::optional<uint64_t>* sum, uint64_t bytes) {
  *sum = SaturatingAdd(sum->value_or(0), bytes);
}

}  // namespace

std::vector<HostDevice> HostDevices(const v1::CoverageResponse& coverage) {
  std::map<std::pair<std::string, std::string>, HostDevice> found;
  for (const auto& row : coverage.rows()) {
    HostDevice& device = found[{row.host_id(), row.device()}];
    device.host_id = row.host_id();
    device.host = row.hostname();
    device.device = row.device();
    device.info = row.device_info();
    if (row.direction() == v1::OPERATION_READ) AddTo(&device.read_bytes, row.kernel_bytes());
    if (row.direction() == v1::OPERATION_WRITE) AddTo(&device.written_bytes, row.kernel_bytes());
  }
  std::vector<HostDevice> devices;
  for (auto& [key, device] : found) {
    // In a whole answer a direction without a book is one in which nothing moved.
    if (coverage.omitted() == 0) {
      AddTo(&device.read_bytes, 0);
      AddTo(&device.written_bytes, 0);
    }
    devices.push_back(std::move(device));
  }
  std::stable_sort(devices.begin(), devices.end(), [](const HostDevice& a, const HostDevice& b) {
    auto rank = [](const HostDevice& d) {
      const uint64_t rest = std::numeric_limits<uint64_t>::max() -
                            SaturatingAdd(d.read_bytes.value_or(0), d.written_bytes.value_or(0));
      return std::make_tuple(d.host, d.host_id, rest);
    };
    return rank(a) < rank(b);
  });
  return devices;
}

}  // namespace fleetblame::cli
