// SPDX-License-Identifier: Apache-2.0
#include "common/connection_hint.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

struct Words {
  std::string_view text;
  bool way_out = false;
};

struct Known {
  std::string_view text;  // in lower case
  Words words;
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
};

// With TLS 1.3 a client hears of a certificate that it lacks only after the handshake, and often as
// no more than the end of the connection.
Words ClosedAtOnce(bool tls, bool certificate) {
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

// Of what the resolver says only one thing helps: whether it was told that there is no such name.
// It goes by the name alone, so that is what is said.
std::string NameWithoutAddress(std::string_view address, const std::string& message) {
  const std::string name(address.substr(0, address.rfind(':')));
  const bool answered =
      !absl::StrContains(message, "contact") && !absl::StrContains(message, "temporary failure");
  return answered ? absl::StrCat("there is no host of the name ", name,
                                 "; check --aggregator, or add the name to DNS or /etc/hosts")
                  : absl::StrCat("no DNS server answers, so the address of ", name,
                                 " is not known; check /etc/resolv.conf, or give an IP address "
                                 "with --aggregator");
}

Words WordsFor(bool tls, bool certificate, const std::string& message) {
  for (const Known& known : kKnown) {
    if (absl::StrContains(message, ToAbsl(known.text))) return known.words;
  }
  if (absl::StrContains(message, "socket closed") || absl::StrContains(message, "reset")) {
    return ClosedAtOnce(tls, certificate);
  }
  return {};
}

}  // namespace

ConnectionHint HintFor(bool tls, bool certificate, std::string_view address,
                       std::string_view grpc_message) {
  const std::string message = absl::AsciiStrToLower(ToAbsl(grpc_message));
  if (absl::StrContains(message, "dns resolution failed") ||
      absl::StrContains(message, "name resolution")) {
    return {NameWithoutAddress(address, message), true};
  }
  const Words words = WordsFor(tls, certificate, message);
  if (words.text.empty()) return {std::string(grpc_message), false};
  return {absl::StrCat(ToAbsl(words.text), " (", ToAbsl(grpc_message), ")"), words.way_out};
}

}  // namespace fleetblame
