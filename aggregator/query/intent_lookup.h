// SPDX-License-Identifier: Apache-2.0
//
// Intents as people write them: a hexadecimal id or the beginning of one. Pure functions over a
// view. Errors: INVALID_ARGUMENT for text that is no id or fits several intents (then candidates
// are listed), NOT_FOUND when nothing fits.
#ifndef AGGREGATOR_QUERY_INTENT_LOOKUP_H_
#define AGGREGATOR_QUERY_INTENT_LOOKUP_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

inline constexpr size_t kIntentHexDigits = 32;
inline constexpr size_t kMinIntentPrefix = 4;
inline constexpr size_t kMinShortId = 6;

absl::StatusOr<IntentNumber> FindIntent(const ReadView& view, std::string_view id_or_prefix);

std::string IntentHex(const v1::Intent& intent);

// The shortest beginning of `hex` that names no other intent, at least kMinShortId digits.
absl::StatusOr<std::string> ShortIntentId(const ReadView& view, std::string_view hex);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_INTENT_LOOKUP_H_
