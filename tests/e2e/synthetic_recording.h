// SPDX-License-Identifier: Apache-2.0
//
// A recording whose every window holds the same, known number of bytes, so that what an aggregator
// stores can be checked against the number of windows that it took. The IO in it is made up; it
// stands in where a test is about transport and storage, never about attribution.
//
// Pure function but for the file.
#ifndef TESTS_E2E_SYNTHETIC_RECORDING_H_
#define TESTS_E2E_SYNTHETIC_RECORDING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace fleetblame::testing {

inline constexpr uint64_t kBytesPerWindow = 8'388'608;

// Writes `windows` windows of `window_ns` each. Stacks are of functions with names such as
// "ext4_da_write_end", so that symbol rewrites of the replay have something to rewrite.
absl::Status WriteSyntheticRecording(const std::string& path, int windows, uint64_t window_ns);

}  // namespace fleetblame::testing

#endif  // TESTS_E2E_SYNTHETIC_RECORDING_H_
