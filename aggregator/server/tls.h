// SPDX-License-Identifier: Apache-2.0
//
// The server's credentials. Certificate, key and client CA are read again when their files change,
// so renewing them needs no restart; a new pair that does not fit is ignored until it does.
#ifndef AGGREGATOR_SERVER_TLS_H_
#define AGGREGATOR_SERVER_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"

namespace fleetblame::aggregator {

struct TlsFiles {
  std::string cert;  // all empty: no TLS
  std::string key;
  std::string client_ca;  // empty: clients need no certificate
};

// FAILED_PRECONDITION with the name of the file and the way out when one cannot be read, does not
// hold what it should, has expired, or key and certificate do not fit.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Checks, then makes credentials.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> NewServerCredentials(
    const TlsFiles& files);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_SERVER_TLS_H_
