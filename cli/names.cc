// SPDX-License-Identifier: Apache-2.0
#include "cli/names.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame::cli {
namespace {

template <typename T>
using Word = std::pair<std::string_view, T>;

constexpr Word<v1::Operation> kOperations[] = {
    {"read", v1::OPERATION_READ},       {"write", v1::OPERATION_WRITE},
    {"discard", v1::OPERATION_DISCARD}, {"write-zeroes", v1::OPERATION_WRITE_ZEROES},
    {"flush", v1::OPERATION_FLUSH},     {"secure-erase", v1::OPERATION_SECURE_ERASE},
    {"other", v1::OPERATION_OTHER},
};
constexpr Word<v1::Confidence> kConfidences[] = {
    {"exact", v1::CONFIDENCE_EXACT},         {"inode", v1::CONFIDENCE_INODE},
    {"journal", v1::CONFIDENCE_JOURNAL},     {"cgroup", v1::CONFIDENCE_CGROUP},
    {"issuer", v1::CONFIDENCE_ISSUER},       {"lost", v1::CONFIDENCE_LOST},
    {"estimated", v1::CONFIDENCE_ESTIMATED},
};
constexpr Word<v1::Dimension> kDimensions[] = {
    {"host", v1::DIMENSION_HOST},
    {"comm", v1::DIMENSION_COMM},
    {"cgroup", v1::DIMENSION_CGROUP},
    {"device", v1::DIMENSION_DEVICE},
    {"op", v1::DIMENSION_OPERATION},
    {"intent", v1::DIMENSION_INTENT},
    {"reason", v1::DIMENSION_REASON},
    {"file", v1::DIMENSION_FILE},
    {"confidence", v1::DIMENSION_CONFIDENCE},
    {"partition", v1::DIMENSION_PARTITION},
    {"top-device", v1::DIMENSION_TOP_DEVICE},
};
constexpr Word<v1::Layer> kLayers[] = {
    {"top", v1::LAYER_TOP},
    {"leaf", v1::LAYER_LEAF},
    {"any", v1::LAYER_ANY},
};
constexpr Word<v1::OrderBy> kOrders[] = {
    {"bytes", v1::ORDER_BY_BYTES},           {"ios", v1::ORDER_BY_IOS},
    {"wait", v1::ORDER_BY_WAIT_TIME},        {"io", v1::ORDER_BY_IO_TIME},
    {"written", v1::ORDER_BY_WRITTEN_BYTES}, {"read", v1::ORDER_BY_READ_BYTES},
};

template <typename T>
absl::StatusOr<T> Find(std::span<const Word<T>> words, std::string_view what,
                       std::string_view word) {
  std::string known;
  for (const auto& [name, value] : words) {
    if (name == word) return value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", ToAbsl(name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(word), "' is no ", ToAbsl(what), "; there are: ", known));
}

template <typename T>
std::string_view NameOf(std::span<const Word<T>> words, T value) {
  for (const auto& [name, known] : words) {
    if (known == value) return name;
  }
  return "unknown";
}

}  // namespace

std::string_view OperationName(v1::Operation v) { return NameOf<v1::Operation>(kOperations, v); }
std::string_view ConfidenceName(v1::Confidence v) {
  return NameOf<v1::Confidence>(kConfidences, v);
}
std::string_view DimensionName(v1::Dimension v) { return NameOf<v1::Dimension>(kDimensions, v); }

absl::StatusOr<v1::Operation> ParseOperation(std::string_view word) {
  return Find<v1::Operation>(kOperations, "operation", word);
}
absl::StatusOr<v1::Confidence> ParseConfidence(std::string_view word) {
  return Find<v1::Confidence>(kConfidences, "confidence", word);
}
absl::StatusOr<v1::Dimension> ParseDimension(std::string_view word) {
  return Find<v1::Dimension>(kDimensions, "dimension", word);
}
std::string_view LayerName(v1::Layer v) { return NameOf<v1::Layer>(kLayers, v); }
absl::StatusOr<v1::Layer> ParseLayer(std::string_view word) {
  return Find<v1::Layer>(kLayers, "layer", word);
}
absl::StatusOr<v1::OrderBy> ParseOrder(std::string_view word) {
  return Find<v1::OrderBy>(kOrders, "order", word);
}

}  // namespace fleetblame::cli
