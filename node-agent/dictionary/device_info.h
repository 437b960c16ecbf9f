// SPDX-License-Identifier: Apache-2.0
//
// What sysfs tells of a block device: name, model, a name that survives reboots, whether it spins,
// the disk that a partition belongs to, and the devices that a stacked one stands on.
//
// Threading: pure functions of the file system. A device that sysfs does not know (it is gone, or
// it was recorded on another host) is named by its numbers; nothing fails.
#ifndef NODE_AGENT_DICTIONARY_DEVICE_INFO_H_
#define NODE_AGENT_DICTIONARY_DEVICE_INFO_H_

#include <cstdint>
#include <string>

#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::agent {

// `sysfs` is "/sys" outside of tests.
v1::Device ReadDevice(const std::string& sysfs, uint32_t major, uint32_t minor);

// Partition `number` of that disk; the disk itself when it has no such partition.
v1::Device ReadPartition(const std::string& sysfs, uint32_t major, uint32_t minor, uint32_t number);

// For a device of another host: what its numbers alone say ("sdb", "loop0", "259:3").
v1::Device NameDevice(uint32_t major, uint32_t minor);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_DICTIONARY_DEVICE_INFO_H_
