// SPDX-License-Identifier: Apache-2.0
#include "common/device_pattern.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame {
namespace {

constexpr size_t kMaxBytes = 256;

// What makes this pattern one that no disk can match; empty when nothing does.
std::string_view Fault(std::string_view pattern) {
  if (pattern.size() > kMaxBytes) return "is longer than 256 bytes";
  if (pattern.starts_with('!')) pattern.remove_prefix(1);
  if (pattern.empty()) return "names no disk";
  if (pattern.starts_with('!')) return "begins with two !";
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/') return "holds a /; write sda, not /dev/sda";
    if (byte >= 0x7F || !absl::ascii_isgraph(byte)) {
      return "holds characters that no disk's name has";
    }
  }
  // A ] closes a list of characters only behind at least one of them.
  const size_t open = pattern.find('[');
  if (open != std::string_view::npos && pattern.find(']', open + 2) == std::string_view::npos) {
    return "has a [ without its ]";
  }
  return "";
}

}  // namespace

absl::Status CheckDevicePattern(std::string_view pattern) {
  const std::string_view fault = Fault(pattern);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("device pattern \"", ToAbsl(pattern.substr(0, kMaxBytes)), "\" ", ToAbsl(fault),
                   "; give names from /sys/block, patterns such as sd*, or MAJOR:MINOR"));
}

}  // namespace fleetblame
