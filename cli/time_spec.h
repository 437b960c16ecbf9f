// SPDX-License-Identifier: Apache-2.0
//
// Points in time as people type them: "10m", "2h30m", "7d" (that long ago), "now",
// "2026-03-01T14:00:00Z", "2026-03-01 14:00" (UTC), "@1767225600" (Unix seconds).
//
// Pure function.
#ifndef CLI_TIME_SPEC_H_
#define CLI_TIME_SPEC_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fleetblame::cli {

// INVALID_ARGUMENT with the accepted forms when `text` is none of them.
absl::StatusOr<absl::Time> ParseTime(std::string_view text, absl::Time now);

// "90s", "10m", "2h30m", "7d"; positive. INVALID_ARGUMENT otherwise.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);

}  // namespace fleetblame::cli

#endif  // CLI_TIME_SPEC_H_
