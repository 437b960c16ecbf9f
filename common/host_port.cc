// SPDX-License-Identifier: Apache-2.0
#include "common/host_port.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame {
namespace {

bool IsPort(std::string_view text, PortZero zero) {
  uint32_t port = 0;
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return absl::SimpleAtoi(ToAbsl(text), &port) && port <= 65535 &&
         (port > 0 || zero == PortZero::kAllowed);
}

// A name or an IPv4 address, or an IPv6 address in brackets.
bool IsHost(std::string_view text) {
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (bracketed) text = text.substr(1, text.size() - 2);
  const std::string_view more = bracketed ? ":.%-_" : ".-_";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // A name of other scripts is the resolver's business.
    if (byte < 0x80 && !absl::ascii_isalnum(byte) && more.find(c) == more.npos) return false;
  }
  return !text.empty();
}

}  // namespace

absl::Status CheckHostPort(std::string_view text, PortZero zero) {
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && IsHost(text.substr(0, colon)) &&
      IsPort(text.substr(colon + 1), zero)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToAbsl(text),
                   "\" is not an address such as aggregator.example:7443 or [2001:db8::1]:7443"));
}

}  // namespace fleetblame
