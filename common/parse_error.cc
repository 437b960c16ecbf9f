// SPDX-License-Identifier: Apache-2.0
#include "common/parse_error.h"

namespace fleetblame {
namespace {

// Followed by the keys that are not known, those of a section as "section.key".
constexpr std::string_view kUnknownKeys = "INI was not able to parse ";
// The library's mark of a section that begins.
constexpr std::string_view kSection = ".++";

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
  return std::string(what);
}

}  // namespace fleetblame
