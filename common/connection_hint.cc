// SPDX-License-Identifier: Apache-2.0
#include "common/connection_hint.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/absl_view.h"

namespace fleetblame {
namespace {

constexpr std::string_view kUnknownAuthority =
    "the aggregator's certificate is not signed by the authority in --tls-ca";
constexpr std::string_view kOtherName =
    "the aggregator's certificate does not name this host; connect to a name in it or give "
    "--tls-server-name";
constexpr std::string_view kPlain =
    "the aggregator does not speak TLS there; leave --tls-ca away or use its TLS port";
constexpr std::string_view kNotAccepted =
    "the aggregator does not accept this certificate; check --tls-cert and --tls-key";

struct Known {
  std::string_view text;  // in lower case
  ConnectionHint hint;
};

// The first that matches counts.
constexpr Known kKnown[] = {
    {"certificate verify failed", {kUnknownAuthority, true}},
    {"certificate_verify_failed", {kUnknownAuthority, true}},
    {"is not in peer certificate", {kOtherName, true}},
    {"hostname verification", {kOtherName, true}},
    {"wrong version number", {kPlain, true}},
    {"wrong_version_number", {kPlain, true}},
    {"certificate required",
     {"the aggregator asks for a certificate; give --tls-cert and --tls-key", true}},
    {"bad certificate", {kNotAccepted, true}},
    {"unknown ca", {kNotAccepted, true}},
    {"handshak", {"the TLS handshake failed; check --tls-ca, --tls-cert and --tls-key", true}},
    {"connection refused", {"nothing listens there", false}},
    {"dns resolution failed", {"the name cannot be resolved", false}},
    {"name resolution", {"the name cannot be resolved", false}},
};

// With TLS 1.3 a client hears of a certificate that it lacks only after the handshake, and often as
// no more than the end of the connection.
ConnectionHint ClosedAtOnce(bool tls, bool certificate) {
  if (!tls) {
    return {"the connection was closed at once; if the aggregator speaks TLS, give --tls-ca", true};
  }
  if (!certificate) {
    return {
        "the connection was closed at once; if the aggregator asks for a certificate, give "
        "--tls-cert and --tls-key",
        true};
  }
  return {
      "the connection was closed at once; the aggregator may not accept this certificate: check "
      "--tls-cert, and that its --tls-client-ca signed it",
      true};
}

}  // namespace

ConnectionHint HintFor(bool tls, bool certificate, std::string_view grpc_message) {
  const std::string message = absl::AsciiStrToLower(ToAbsl(grpc_message));
  for (const Known& known : kKnown) {
    if (absl::StrContains(message, ToAbsl(known.text))) return known.hint;
  }
  if (absl::StrContains(message, "socket closed") || absl::StrContains(message, "reset")) {
    return ClosedAtOnce(tls, certificate);
  }
  return {};
}

}  // namespace fleetblame
