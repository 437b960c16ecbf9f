// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/dimension_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace fleetblame::aggregator {
namespace {

std::string Lower(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

}  // namespace

std::string OperationText(v1::Operation operation) {
  if (operation == v1::OPERATION_UNSPECIFIED) return "";
  return Lower(v1::Operation_Name(operation), "OPERATION_");
}

std::string ConfidenceText(v1::Confidence confidence) {
  if (confidence == v1::CONFIDENCE_UNSPECIFIED) return "";
  return Lower(v1::Confidence_Name(confidence), "CONFIDENCE_");
}

std::string DimensionText(v1::Dimension dimension) {
  return Lower(v1::Dimension_Name(dimension), "DIMENSION_");
}

}  // namespace fleetblame::aggregator
