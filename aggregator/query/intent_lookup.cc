// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/intent_lookup.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kCandidatesShown = 8;

absl::Status NotAnId(std::string_view text) {
  std::string shown = absl::Utf8SafeCEscape(ToAbsl(text.substr(0, 40)));
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", shown, "\" is no intent: give ", kMinIntentPrefix, " to ", kIntentHexDigits,
      " hexadecimal digits of its id, as the first column of top shows them"));
}

// "9f3c1a… ext4_da_write_end < generic_perform_write (background)"
std::string Describe(const v1::Intent& intent) {
  std::string out = IntentHex(intent).substr(0, 12);
  for (int i = 0; i < intent.frames_size() && i < 2; ++i) {
    absl::StrAppend(&out, i == 0 ? " " : " < ", intent.frames(i));
  }
  if (!intent.modifier().empty()) absl::StrAppend(&out, " (", intent.modifier(), ")");
  return out;
}

absl::Status Ambiguous(const ReadView& view, const std::string& prefix,
                       const std::vector<IntentNumber>& found) {
  std::string message = absl::StrCat("intent ", prefix, " is ambiguous; more digits are needed: ");
  for (size_t i = 0; i < found.size() && i < kCandidatesShown; ++i) {
    absl::StatusOr<v1::Intent> intent = view.Intent(found[i]);
    if (!intent.ok()) continue;
    absl::StrAppend(&message, i == 0 ? "" : ", ", Describe(*intent));
  }
  if (found.size() > kCandidatesShown) absl::StrAppend(&message, ", and more");
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<IntentNumber> FindIntent(const ReadView& view, std::string_view id_or_prefix) {
  std::string prefix = absl::AsciiStrToLower(ToAbsl(id_or_prefix));
  if (prefix.size() < kMinIntentPrefix || prefix.size() > kIntentHexDigits ||
      prefix.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return NotAnId(id_or_prefix);
  }
  absl::StatusOr<std::vector<IntentNumber>> found = view.FindIntents(prefix, kCandidatesShown + 1);
  if (!found.ok()) return found.status();
  if (found->empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no intent begins with ", prefix,
        "; search finds intents by the functions in their stack, top lists those of a range"));
  }
  if (found->size() > 1) return Ambiguous(view, prefix, *found);
  return found->front();
}

std::string IntentHex(const v1::Intent& intent) {
  return absl::BytesToHexString(intent.intent_id());
}

absl::StatusOr<std::string> ShortIntentId(const ReadView& view, std::string_view hex) {
  for (size_t length = kMinShortId; length < hex.size(); ++length) {
    std::string_view prefix = hex.substr(0, length);
    absl::StatusOr<std::vector<IntentNumber>> found = view.FindIntents(prefix, 2);
    if (!found.ok()) return found.status();
    if (found->size() < 2) return std::string(prefix);
  }
  return std::string(hex);
}

}  // namespace fleetblame::aggregator
