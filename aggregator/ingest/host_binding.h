// SPDX-License-Identifier: Apache-2.0
//
// Which host a client certificate may speak for. A certificate names a host by its host_id or by
// its hostname; since a peer says its hostname itself, a hostname counts only for a host_id that is
// new or was last seen under a name that the certificate holds too.
//
// Threading: values and functions. Errors: PERMISSION_DENIED with the way out.
#ifndef AGGREGATOR_INGEST_HOST_BINDING_H_
#define AGGREGATOR_INGEST_HOST_BINDING_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/security/auth_context.h"

namespace fleetblame::aggregator {

// The DNS names of the peer's verified certificate; its common name when it has none. Empty without
// a certificate. Wildcards are left out: they name no host.
std::vector<std::string> CertificateNames(const grpc::AuthContext& peer);

// `known_hostname` is what the host with this id was last called; empty for a new one.
absl::Status CheckHostBinding(const std::vector<std::string>& certificate_names,
                              std::string_view host_id, std::string_view hostname,
                              std::string_view known_hostname);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_HOST_BINDING_H_
