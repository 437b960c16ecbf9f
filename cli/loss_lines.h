// SPDX-License-Identifier: Apache-2.0
//
// The loss counters under a table. Pure function.
#ifndef CLI_LOSS_LINES_H_
#define CLI_LOSS_LINES_H_

#include <string>

#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

// A line for each counter that means lost bytes or blame, by name; `verbose`: for every counter,
// and what it means. Otherwise a line says how many were left out.
std::string LossLines(const v1::Summary& summary, bool verbose);

}  // namespace fleetblame::cli

#endif  // CLI_LOSS_LINES_H_
