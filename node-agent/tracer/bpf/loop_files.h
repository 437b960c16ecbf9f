// SPDX-License-Identifier: Apache-2.0
//
// Which files loop devices stand on. A loop device whose file lies in a filesystem on a disk passes
// its writes on to that disk, by a thread of its driver.
//
// Not thread-safe. A device is asked only when /sys says that it has another file than before.
// Errors: a device that cannot be opened or asked has no file here, and its writes are blamed on
// the driver's thread.
#ifndef NODE_AGENT_TRACER_BPF_LOOP_FILES_H_
#define NODE_AGENT_TRACER_BPF_LOOP_FILES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

struct LoopFile {
  DeviceNumber filesystem;
  uint64_t inode = 0;
  uint64_t offset_bytes = 0;  // at which the device begins in the file
  auto operator<=>(const LoopFile&) const = default;
};

class LoopFiles {
 public:
  // The directories are /sys/block and /dev but for tests.
  explicit LoopFiles(std::string sys_block = "/sys/block", std::string dev = "/dev")
      : sys_block_(std::move(sys_block)), dev_(std::move(dev)) {}

  // The file of a device by its kernel name ("loop3"); nothing for one that is no loop device, is
  // read-only, or whose file lies in memory or in a filesystem of several devices.
  std::optional<LoopFile> Of(const std::string& name);

 private:
  struct Known {
    std::string attached;  // what /sys said
    std::optional<LoopFile> file;
  };
  const std::string sys_block_;
  const std::string dev_;
  std::map<std::string, Known> known_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_LOOP_FILES_H_
