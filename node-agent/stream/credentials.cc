// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/credentials.h"

#include <errno.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame::agent {
namespace {

absl::Status ReadPem(const char* flag, const std::string& path, std::string* out) {
  if (path.empty()) return absl::OkStatus();
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat(flag, ": read ", path));
  }
  *out = text.str();
  if (!absl::StrContains(*out, "-----BEGIN ")) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " is not a PEM file"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeyMaterial> ReadKeyMaterial(const TlsConfig& config) {
  KeyMaterial material;
  for (const absl::Status& status : {ReadPem("--tls-ca", config.ca, &material.ca),
                                     ReadPem("--tls-cert", config.cert, &material.cert),
                                     ReadPem("--tls-key", config.key, &material.key)}) {
    if (!status.ok()) return status;
  }
  return material;
}

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const TlsConfig& config,
                                                          const KeyMaterial& material) {
  if (!config.enabled()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = material.ca;
  options.pem_cert_chain = material.cert;
  options.pem_private_key = material.key;
  return grpc::SslCredentials(options);
}

std::string ExplainConnectionError(const TlsConfig& config, const std::string& address,
                                   std::string_view grpc_message) {
  const absl::string_view message = ToAbsl(grpc_message);
  std::string hint;
  if (absl::StrContainsIgnoreCase(message, "certificate verify failed") ||
      absl::StrContains(message, "CERTIFICATE_VERIFY_FAILED")) {
    hint = "the aggregator's certificate is not signed by the authority in --tls-ca";
  } else if (absl::StrContains(message, "is not in peer certificate") ||
             absl::StrContains(message, "Hostname Verification")) {
    hint =
        "the aggregator's certificate does not name this host; connect to a name in it or give "
        "--tls-server-name";
  } else if (absl::StrContainsIgnoreCase(message, "wrong version number") ||
             absl::StrContains(message, "WRONG_VERSION_NUMBER")) {
    hint = "the aggregator does not speak TLS there; leave --tls-ca away or use its TLS port";
  } else if (absl::StrContainsIgnoreCase(message, "certificate required") ||
             absl::StrContainsIgnoreCase(message, "bad certificate") ||
             absl::StrContainsIgnoreCase(message, "unknown ca")) {
    hint = "the aggregator does not accept this agent's certificate; check --tls-cert and --tls-key";
  } else if (absl::StrContainsIgnoreCase(message, "handshak")) {
    hint = "the TLS handshake failed; check --tls-ca, --tls-cert and --tls-key";
  } else if (absl::StrContainsIgnoreCase(message, "connection refused")) {
    hint = "nothing listens there";
  } else if (absl::StrContainsIgnoreCase(message, "DNS resolution failed") ||
             absl::StrContainsIgnoreCase(message, "name resolution")) {
    hint = "the name cannot be resolved";
  } else if (!config.enabled() && (absl::StrContainsIgnoreCase(message, "socket closed") ||
                                   absl::StrContainsIgnoreCase(message, "connection reset"))) {
    hint = "the connection was closed at once; if the aggregator speaks TLS, give --tls-ca";
  }
  if (hint.empty()) return absl::StrCat(address, ": ", message);
  return absl::StrCat(address, ": ", hint, " (", message, ")");
}

}  // namespace fleetblame::agent
