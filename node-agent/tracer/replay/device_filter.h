// SPDX-License-Identifier: Apache-2.0
//
// Which of the devices of a recording are watched: DeviceSelection applied to a fixed list, since
// the disks of the host that plays it are other ones.
//
// Threading: one thread.
#ifndef NODE_AGENT_TRACER_REPLAY_DEVICE_FILTER_H_
#define NODE_AGENT_TRACER_REPLAY_DEVICE_FILTER_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// Kernel name of a block device of this host; empty when it has none.
std::string BlockDeviceName(DeviceNumber device);

class DeviceFilter {
 public:
  // All devices that the recording knows, by number; the name may be empty.
  void SetKnown(std::map<DeviceNumber, std::string> known) { known_ = std::move(known); }
  const std::map<DeviceNumber, std::string>& known() const { return known_; }

  // NOT_FOUND when a pattern without glob characters matches none; the old selection then stays.
  absl::Status Select(const DeviceSelection& selection);

  bool Watches(DeviceNumber device) const { return all_ || watched_.contains(device); }

 private:
  std::map<DeviceNumber, std::string> known_;
  std::set<DeviceNumber> watched_;
  bool all_ = true;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_DEVICE_FILTER_H_
