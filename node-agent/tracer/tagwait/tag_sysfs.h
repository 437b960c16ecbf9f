// SPDX-License-Identifier: Apache-2.0
//
// What sysfs tells of the controller behind a disk and of the disk's queue.
//
// Threading: pure functions of the file system. What sysfs does not know stays empty or absent;
// nothing fails.
#ifndef NODE_AGENT_TRACER_TAGWAIT_TAG_SYSFS_H_
#define NODE_AGENT_TRACER_TAGWAIT_TAG_SYSFS_H_

#include <cstdint>
#include <string>

#include "proto/fleetblame/v1/tagwait.pb.h"

namespace fleetblame::agent {

// Fills in driver, host, model, PCI ids, firmware and SCSI limits from one disk of the set.
// `sysfs` is "/sys" outside of tests.
void ReadController(const std::string& sysfs, uint32_t major, uint32_t minor, v1::TagSet* set);

// Fills in scheduler, nr_requests and queue_depth.
void ReadQueue(const std::string& sysfs, uint32_t major, uint32_t minor, v1::TagDisk* disk);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_TAGWAIT_TAG_SYSFS_H_
