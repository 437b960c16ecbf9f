// SPDX-License-Identifier: Apache-2.0
//
// From the names that the kernel side noted for an inode to a path that a person knows.
//
// Threading: MountTable belongs to one thread; the functions are pure.
#ifndef NODE_AGENT_TRACER_BPF_FILE_PATH_H_
#define NODE_AGENT_TRACER_BPF_FILE_PATH_H_

#include <map>
#include <string>
#include <string_view>

#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// `names` are zero-ended, from the file up to the root of its filesystem. `complete`: the root was
// reached; else, or when `mount_point` is empty, the path begins with "…/". No names give "".
std::string BuildPath(std::string_view names, bool complete, std::string_view mount_point);

// Where filesystems are mounted.
class MountTable {
 public:
  // Takes the text of /proc/self/mountinfo. Of several mounts of a filesystem's root the shortest
  // path counts.
  void Parse(std::string_view mountinfo);
  // Reads /proc/self/mountinfo; keeps the old table when that fails.
  void Reload();
  // Empty when the filesystem's root is mounted nowhere.
  std::string MountPoint(DeviceNumber filesystem) const;

 private:
  std::map<DeviceNumber, std::string> points_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_FILE_PATH_H_
