// SPDX-License-Identifier: Apache-2.0
//
// The kinds of values that flags take, each with a parser that says what it expected.
//
// Threading: pure functions.
#ifndef NODE_AGENT_CONFIG_VALUES_H_
#define NODE_AGENT_CONFIG_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fleetblame::agent {

// "10s", "1m30s", "500ms".
absl::StatusOr<absl::Duration> ParseDurationValue(const std::string& text);

// "268435456", "256MiB", "1G" (powers of 1024).
absl::StatusOr<uint64_t> ParseBytesValue(const std::string& text);

// Text that people will read and the wire must carry: UTF-8 without control characters. The error
// goes on behind the name of what was checked.
absl::Status CheckText(const std::string& text, size_t max_bytes);

// "key=value" pairs to a map; keys as label matchers accept them, each once.
absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& pairs);

// Splits at commas and white space; no empty items.
std::vector<std::string> SplitList(const std::vector<std::string>& items);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_CONFIG_VALUES_H_
