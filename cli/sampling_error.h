// SPDX-License-Identifier: Apache-2.0
//
// How uncertain a sum is of which some IOs were estimated (docs/tracer.md, "Very many IOs").
// Pure functions.
#ifndef CLI_SAMPLING_ERROR_H_
#define CLI_SAMPLING_ERROR_H_

#include <optional>
#include <string>

#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

// Half the width of the 95 % interval around `ios`, as a part of it. Nothing when no IO was
// estimated, or when none of these was looked at, so that nothing is known of the error.
std::optional<double> RelativeError95(const v1::Metrics& metrics);

// For a table: "3.1%"; "-" when no IO was estimated, "?" when nothing is known of the error.
std::string ErrorText(const v1::Metrics& metrics);

}  // namespace fleetblame::cli

#endif  // CLI_SAMPLING_ERROR_H_
