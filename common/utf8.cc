// SPDX-License-Identifier: Apache-2.0
#include "common/utf8.h"

#include <cstdint>

namespace fleetblame {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kCutPath = "\xE2\x80\xA6/";  // "…/"

// Length of the valid sequence that `bytes` begins with; 0 when there is none.
size_t SequenceLength(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  uint32_t point = 0;
  uint32_t least = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2, point = first & 0x1F, least = 0x80;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3, point = first & 0x0F, least = 0x800;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4, point = first & 0x07, least = 0x10000;
  } else {
    return 0;
  }
  if (bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (at(i) & 0x3F);
  }
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point >= least && point <= 0x10FFFF && !surrogate ? length : 0;
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = SequenceLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = SequenceLength(bytes);
    text.append(length > 0 ? bytes.substr(0, length) : kReplacement);
    bytes.remove_prefix(length > 0 ? length : 1);
  }
  return text;
}

std::string ToUtf8Path(std::string_view bytes, size_t max_bytes) {
  std::string text = ToUtf8(bytes);
  if (text.size() <= max_bytes) return text;
  size_t from = text.size() - (max_bytes - kCutPath.size());
  // At the beginning of a component if there is one, of a character at least.
  if (const size_t slash = text.find('/', from); slash != std::string::npos) {
    from = slash + 1;
  } else {
    while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return std::string(kCutPath) + text.substr(from);
}

}  // namespace fleetblame
