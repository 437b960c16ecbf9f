// SPDX-License-Identifier: Apache-2.0
//
// The stable JSON form of what the aggregator answers: base units, ids in full, names as documented
// in docs/cli.md. Unknown is null or absent, never 0. Pure functions.
#ifndef CLI_JSON_H_
#define CLI_JSON_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <ostream>

#include "nlohmann/json.hpp"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

using Json = nlohmann::ordered_json;

Json SummaryJson(const v1::Summary& summary);
// Absent values are null.
Json DeviceJson(const v1::Device& device);
Json HistogramJson(const v1::Histogram& histogram);
Json MetricsJson(const v1::Metrics& metrics);
// One member for each dimension, named as after --by ("comm": "postgres").
Json KeyJson(const google::protobuf::RepeatedPtrField<v1::DimensionValue>& key);
Json IntentJson(const v1::DimensionValue& intent);
// Key and metrics in one object.
Json RowJson(const v1::TopResponse::Row& row);
Json GapJson(const v1::Gap& gap);
// RFC 3339 in UTC; null for 0.
Json TimeJson(uint64_t unix_ns);
std::string Hex(const std::string& bytes);

// Invalid UTF-8 from kernels is replaced, never an error.
void Write(const Json& json, std::ostream& out, int indent = 2);

}  // namespace fleetblame::cli

#endif  // CLI_JSON_H_
