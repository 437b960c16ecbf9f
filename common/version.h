// SPDX-License-Identifier: Apache-2.0
//
// The one place that knows the version of this software. It follows semantic
// versioning; the wire and the store carry versions of their own.
#ifndef COMMON_VERSION_H_
#define COMMON_VERSION_H_

#include <string>
#include <string_view>

namespace fleetblame {

inline constexpr std::string_view kVersion = "0.1.0";

// What `--version` prints: "fleetblame-agent 0.1.0 (x86_64, gcc 12.2.0, optimized)".
std::string VersionLine(std::string_view program);

}  // namespace fleetblame

#endif  // COMMON_VERSION_H_
