// SPDX-License-Identifier: Apache-2.0
#include "node-agent/config/values.h"

#include <cctype>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/utf8.h"

namespace fleetblame::agent {
namespace {

constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxLabelKeyBytes = 64;
constexpr size_t kMaxLabelValueBytes = 256;

bool IsLabelKey(const std::string& key) {
  if (key.empty() || key.size() > kMaxLabelKeyBytes) return false;
  if (std::isdigit(static_cast<unsigned char>(key[0]))) return false;
  for (const char c : key) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDurationValue(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a duration such as 10s, 500ms or 1m30s"));
  }
  return duration;
}

absl::StatusOr<uint64_t> ParseBytesValue(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  std::string unit = absl::AsciiStrToLower(text.substr(digits));
  absl::StripAsciiWhitespace(&unit);
  int shift = -1;
  if (unit.empty() || unit == "b") shift = 0;
  if (unit == "k" || unit == "kib") shift = 10;
  if (unit == "m" || unit == "mib") shift = 20;
  if (unit == "g" || unit == "gib") shift = 30;
  if (unit == "t" || unit == "tib") shift = 40;
  uint64_t value = 0;
  if (shift < 0 || !absl::SimpleAtoi(text.substr(0, digits), &value) ||
      value > std::numeric_limits<uint64_t>::max() >> shift) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a size such as 268435456, 256MiB or 1GiB"));
  }
  return value << shift;
}

absl::Status CheckText(const std::string& text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("is longer than ", max_bytes, " bytes"));
  }
  if (!IsUtf8(text)) return absl::InvalidArgumentError("is not UTF-8");
  for (const char c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError("holds control characters");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> labels;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    const std::string key = pair.substr(0, equals);
    if (equals == std::string::npos || !IsLabelKey(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", pair, "\" is not key=value with a key of letters, digits and _"));
    }
    std::string value = pair.substr(equals + 1);
    if (key == "host" || key == "kernel") {
      return absl::InvalidArgumentError(
          absl::StrCat("every host has a label ", key, " of its own; choose another key"));
    }
    if (auto status = CheckText(value, kMaxLabelValueBytes); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the value of label ", key, " ", status.message()));
    }
    if (labels.contains(key)) {
      return absl::InvalidArgumentError(absl::StrCat("label ", key, " is given twice"));
    }
    labels[key] = std::move(value);
  }
  if (labels.size() > kMaxLabels) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", labels.size(), " labels, and at most ", kMaxLabels, " go"));
  }
  return labels;
}

std::vector<std::string> SplitList(const std::vector<std::string>& items) {
  std::vector<std::string> result;
  for (const std::string& item : items) {
    for (auto part : absl::StrSplit(item, absl::ByAnyChar(", \t\n"), absl::SkipEmpty())) {
      result.emplace_back(part.data(), part.size());
    }
  }
  return result;
}

}  // namespace fleetblame::agent
