// SPDX-License-Identifier: Apache-2.0
//
// The patterns that choose disks: a kernel name, a shell glob or MAJ:MIN, with "!" before one that
// takes away. Agent and aggregator refuse the same ones: a pattern that can match no disk at all,
// taken silently, would watch nothing.
//
// Threading: pure functions.
#ifndef COMMON_DEVICE_PATTERN_H_
#define COMMON_DEVICE_PATTERN_H_

#include <string_view>

#include "absl/status/status.h"

namespace fleetblame {

// INVALID_ARGUMENT names the pattern and says what is wrong with it.
absl::Status CheckDevicePattern(std::string_view pattern);

}  // namespace fleetblame

#endif  // COMMON_DEVICE_PATTERN_H_
