// SPDX-License-Identifier: Apache-2.0
//
// The addresses that people type. gRPC takes nearly anything for an address: it makes port 0 of a
// missing one and 34463 of 99999, so they are checked before it sees them.
//
// Threading: pure functions.
#ifndef COMMON_HOST_PORT_H_
#define COMMON_HOST_PORT_H_

#include <string_view>

#include "absl/status/status.h"

namespace fleetblame {

enum class PortZero { kRefused, kAllowed };  // allowed where it means "any free port"

// "host:port" or "[v6]:port". INVALID_ARGUMENT says how an address is written.
absl::Status CheckHostPort(std::string_view text, PortZero zero = PortZero::kRefused);

}  // namespace fleetblame

#endif  // COMMON_HOST_PORT_H_
