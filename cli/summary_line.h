// SPDX-License-Identifier: Apache-2.0
//
// The first line of every answer: what it rests on, and what is missing. Pure function.
#ifndef CLI_SUMMARY_LINE_H_
#define CLI_SUMMARY_LINE_H_

#include <string>

#include "cli/terminal.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

// One line such as
//   10 min to 14:20:30 UTC · 3 of 3 hosts · written 4.1 GiB, read 310 MiB · blame: exact 96.2 %,
//   lost 0
// then one line for each thing that makes the answer incomplete, in the aggregator's words, and
// which gaps and clocks it speaks of.
std::string SummaryLines(const v1::Summary& summary, const Terminal& terminal);

}  // namespace fleetblame::cli

#endif  // CLI_SUMMARY_LINE_H_
