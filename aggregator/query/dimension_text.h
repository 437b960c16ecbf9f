// SPDX-License-Identifier: Apache-2.0
//
// Names of operations and confidences as they appear in answers ("write_zeroes", "exact"). Pure.
#ifndef AGGREGATOR_QUERY_DIMENSION_TEXT_H_
#define AGGREGATOR_QUERY_DIMENSION_TEXT_H_

#include <string>

#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

// Empty for UNSPECIFIED and for values that are not known here.
std::string OperationText(v1::Operation operation);
std::string ConfidenceText(v1::Confidence confidence);
// "host", "comm", ...
std::string DimensionText(v1::Dimension dimension);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_DIMENSION_TEXT_H_
