// SPDX-License-Identifier: Apache-2.0
#include "common/metrics_address.h"

#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame {
namespace {

bool IsPort(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port <= 65535;
}

// The form that the HTTP server binds, or nothing. A missing host must not
// reach it: it would mean every interface.
std::optional<std::string> BindAddress(std::string_view address) {
  if (IsPort(address)) return absl::StrCat("127.0.0.1:", ToAbsl(address));
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || !IsPort(address.substr(colon + 1)))
    return std::nullopt;
  std::string_view host = address.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (host.find(':') != host.npos && !bracketed) return std::nullopt;
  // Its list syntax (`,`) and its suffixes for TLS are not for users here.
  if (host.find_first_of(", \t") != std::string_view::npos) return std::nullopt;
  if (host == "localhost") host = "127.0.0.1";
  return absl::StrCat(ToAbsl(host), ":", ToAbsl(address.substr(colon + 1)));
}

}  // namespace

absl::StatusOr<std::string> MetricsBindAddress(std::string_view address) {
  if (std::optional<std::string> bind = BindAddress(address)) return *std::move(bind);
  return absl::InvalidArgumentError(
      absl::StrCat("metrics address \"", ToAbsl(address),
                   "\" is not HOST:PORT; write an address and a port such as 127.0.0.1:9464"));
}

}  // namespace fleetblame
