// SPDX-License-Identifier: Apache-2.0
//
// Debian builds Abseil with an absl::string_view of its own, which converts
// neither to nor from std::string_view. Our code speaks std::string_view; these
// two cross over where an Abseil function takes or returns the other one.
// Neither copies: the text must outlive the view, as with any view.
#ifndef COMMON_ABSL_VIEW_H_
#define COMMON_ABSL_VIEW_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace fleetblame {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view FromAbsl(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace fleetblame

#endif  // COMMON_ABSL_VIEW_H_
