// SPDX-License-Identifier: Apache-2.0
//
// Kernel texts (command names, cgroup and file paths) and what people type are bytes; the wire
// wants UTF-8, and a message that breaks this is refused as a whole.
//
// Threading: pure functions.
#ifndef COMMON_UTF8_H_
#define COMMON_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace fleetblame {

bool IsUtf8(std::string_view bytes);

// The text with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string ToUtf8(std::string_view bytes);

// The last `max_bytes` bytes or less of a path, beginning with "…/" when something was cut off.
std::string ToUtf8Path(std::string_view bytes, size_t max_bytes);

}  // namespace fleetblame

#endif  // COMMON_UTF8_H_
