// SPDX-License-Identifier: Apache-2.0
//
// How uncertain a sum is of which some IOs were estimated (docs/tracer.md, "Very many IOs").
// Pure functions.
#ifndef CLI_SAMPLING_ERROR_H_
#define CLI_SAMPLING_ERROR_H_

#include <string>

#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

// How many IOs each sampled one stood for, as a mean over the estimated IOs; 0 when none was
// estimated. So the variance of a sum of IOs is this times those of it that are estimated.
double SampleWeight(const v1::Summary& summary);

// Half the width of the 95 % interval around `ios`, as a part of it; 0 without IOs.
double RelativeError95(const v1::Metrics& metrics, double sample_weight);

// That for a table: "±3.1 %"; "-" when no IO was estimated, "?" when it is not known how many each
// sampled one stood for.
std::string ErrorText(const v1::Metrics& metrics, double sample_weight);

}  // namespace fleetblame::cli

#endif  // CLI_SAMPLING_ERROR_H_
