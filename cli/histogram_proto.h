// SPDX-License-Identifier: Apache-2.0
//
// From the wire's histogram to the one that can be asked for quantiles. Pure function.
#ifndef CLI_HISTOGRAM_PROTO_H_
#define CLI_HISTOGRAM_PROTO_H_

#include "common/histogram.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::cli {

// Buckets that this version does not know are left out.
SparseHistogram ToSparse(const v1::Histogram& histogram);

}  // namespace fleetblame::cli

#endif  // CLI_HISTOGRAM_PROTO_H_
