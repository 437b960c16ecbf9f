// SPDX-License-Identifier: Apache-2.0
//
// The address that a daemon's metrics are served on, checked without opening it, so that a wrong
// one is refused with the other flags and not after the start.
//
// Threading: pure functions.
#ifndef COMMON_METRICS_ADDRESS_H_
#define COMMON_METRICS_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fleetblame {

// The form that the HTTP server binds, out of "host:port", "[v6]:port" or a bare "port", which
// means loopback. INVALID_ARGUMENT for any other text.
absl::StatusOr<std::string> MetricsBindAddress(std::string_view address);

}  // namespace fleetblame

#endif  // COMMON_METRICS_ADDRESS_H_
