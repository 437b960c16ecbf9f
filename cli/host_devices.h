// SPDX-License-Identifier: Apache-2.0
//
// What `fleetblame hosts --devices` lists: the block devices of each host, from their books.
//
// Pure functions. Sizes are bytes as the kernel counted them.
#ifndef CLI_HOST_DEVICES_H_
#define CLI_HOST_DEVICES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

struct HostDevice {
  std::string host_id;
  std::string host;
  std::string device;  // kernel name
  v1::Device info;
  // Nothing: the answer was cut, and the book of this direction is not in it.
  std::optional<uint64_t> read_bytes;
  std::optional<uint64_t> written_bytes;
};

// One entry for each device of each host, by the names of the hosts; of a host the busiest device
// first.
std::vector<HostDevice> HostDevices(const v1::CoverageResponse& coverage);

}  // namespace fleetblame::cli

#endif  // CLI_HOST_DEVICES_H_
