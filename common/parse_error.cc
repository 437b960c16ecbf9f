// SPDX-License-Identifier: Apache-2.0
#include "common/parse_error.h"

#include <optional>

namespace fleetblame {
namespace {

// Followed by the keys that are not known, those of a section as "section.key".
constexpr std::string_view kUnknownKeys = "INI was not able to parse ";
// The library's mark of a section that begins.
constexpr std::string_view kSection = ".++";

// "--x: Value abc not in range 1 to 9" is said of text as well as of a number that is too large.
std::optional<std::string> OutOfRange(std::string_view what) {
  constexpr std::string_view kValue = ": Value ";
  constexpr std::string_view kRange = " not in range ";
  const size_t value = what.find(kValue);
  const size_t range = what.rfind(kRange);
  if (value == what.npos || range == what.npos || range < value + kValue.size()) {
    return std::nullopt;
  }
  const std::string_view given = what.substr(value + kValue.size(), range - value - kValue.size());
  return std::string(what.substr(0, value)) + ": \"" + std::string(given) +
         "\" is no number from " + std::string(what.substr(range + kRange.size()));
}

std::optional<std::string> NotConverted(std::string_view what) {
  constexpr std::string_view kMark = "Could not convert: ";
  constexpr std::string_view kIs = " = ";
  if (!what.starts_with(kMark)) return std::nullopt;
  what.remove_prefix(kMark.size());
  const size_t is = what.find(kIs);
  if (is == what.npos) return std::nullopt;
  return std::string(what.substr(0, is)) + ": \"" + std::string(what.substr(is + kIs.size())) +
         "\" is not a value of the kind that --help names";
}

}  // namespace

std::string ParseErrorSentence(std::string_view what) {
  if (what.starts_with(kUnknownKeys)) {
    std::string_view keys = what.substr(kUnknownKeys.size());
    if (keys.ends_with(kSection)) {
      keys.remove_suffix(kSection.size());
      return "the configuration file has a section [" + std::string(keys) +
             "]; settings stand in none";
    }
    return "the configuration file sets \"" + std::string(keys) +
           "\", and there is no such setting; its keys are the flags of --help without their "
           "dashes";
  }
  constexpr std::string_view kUnreadable = " was not readable (missing?)";
  if (what.ends_with(kUnreadable)) {
    what.remove_suffix(kUnreadable.size());
    return "--config: " + std::string(what) + " is no file that can be read";
  }
  if (std::optional<std::string> sentence = OutOfRange(what)) return *sentence;
  if (std::optional<std::string> sentence = NotConverted(what)) return *sentence;
  return std::string(what);
}

}  // namespace fleetblame
