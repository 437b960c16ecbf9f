// SPDX-License-Identifier: Apache-2.0
//
// Enum values as people read and type them: "write", "exact", "comm". The only place that knows
// these words; they are part of the stable output format. Pure functions.
#ifndef CLI_NAMES_H_
#define CLI_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

std::string_view OperationName(v1::Operation operation);
std::string_view ConfidenceName(v1::Confidence confidence);
// As typed after --by: "host", "comm", "cgroup", "device", "op", "intent", "reason", "file",
// "confidence".
std::string_view DimensionName(v1::Dimension dimension);

// INVALID_ARGUMENT with the possible words.
absl::StatusOr<v1::Operation> ParseOperation(std::string_view word);
absl::StatusOr<v1::Confidence> ParseConfidence(std::string_view word);
absl::StatusOr<v1::Dimension> ParseDimension(std::string_view word);
std::string_view LayerName(v1::Layer v);
absl::StatusOr<v1::Layer> ParseLayer(std::string_view word);
absl::StatusOr<v1::OrderBy> ParseOrder(std::string_view word);

}  // namespace fleetblame::cli

#endif  // CLI_NAMES_H_
