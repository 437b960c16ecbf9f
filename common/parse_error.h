// SPDX-License-Identifier: Apache-2.0
//
// What the command-line library says about flags and configuration files, in words that help.
//
// Threading: pure functions.
#ifndef COMMON_PARSE_ERROR_H_
#define COMMON_PARSE_ERROR_H_

#include <string>
#include <string_view>

namespace fleetblame {

// The sentence for the library's message `what`.
std::string ParseErrorSentence(std::string_view what);

}  // namespace fleetblame

#endif  // COMMON_PARSE_ERROR_H_
