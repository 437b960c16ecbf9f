// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/host_binding.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/absl_view.h"
#include "grpc/grpc_security_constants.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kNamesShown = 5;

void Append(const grpc::AuthContext& peer, const char* property, std::vector<std::string>* names) {
  for (const grpc::string_ref& value : peer.FindPropertyValues(property)) {
    if (value.empty() || std::find(value.begin(), value.end(), '*') != value.end()) continue;
    names->emplace_back(value.data(), value.size());
  }
}

bool Names(const std::vector<std::string>& names, std::string_view host) {
  return std::any_of(names.begin(), names.end(), [host](const std::string& name) {
    return !host.empty() && absl::EqualsIgnoreCase(name, ToAbsl(host));
  });
}

std::string Shown(std::vector<std::string> names) {
  if (names.empty()) return "no host";
  const size_t total = names.size();
  names.resize(std::min(total, kNamesShown));
  return absl::StrCat(absl::StrJoin(names, ", "), total > kNamesShown ? ", ..." : "");
}

}  // namespace

std::vector<std::string> CertificateNames(const grpc::AuthContext& peer) {
  std::vector<std::string> names;
  if (!peer.IsPeerAuthenticated()) return names;
  Append(peer, GRPC_PEER_DNS_PROPERTY_NAME, &names);
  if (names.empty()) Append(peer, GRPC_X509_CN_PROPERTY_NAME, &names);
  return names;
}

absl::Status CheckHostBinding(const std::vector<std::string>& certificate_names,
                              std::string_view host_id, std::string_view hostname,
                              std::string_view known_hostname) {
  if (Names(certificate_names, host_id)) return absl::OkStatus();
  if (!Names(certificate_names, hostname)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the client certificate names ", Shown(certificate_names), ", not host ", ToAbsl(hostname),
        " (host_id ", ToAbsl(host_id),
        "); give its agent a certificate whose DNS name is the hostname or the host_id "
        "(deploy/tls/make-certs --host), or start the aggregator with --tls-bind-hosts=false"));
  }
  if (known_hostname.empty() || Names(certificate_names, known_hostname)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "host_id ", ToAbsl(host_id), " is known as ", ToAbsl(known_hostname),
      ", which the client certificate (", Shown(certificate_names),
      ") does not name; if the host was renamed, give its agent a certificate that also names ",
      ToAbsl(known_hostname), " or the host_id"));
}

}  // namespace fleetblame::aggregator
