// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/credentials.h"

#include <errno.h>

#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
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
  const std::string message = absl::AsciiStrToLower(ToAbsl(grpc_message));
  struct Known {
    const char* text;  // in lower case
    const char* hint;
  };
  constexpr Known kKnown[] = {
      {"certificate verify failed",
       "the aggregator's certificate is not signed by the authority in --tls-ca"},
      {"certificate_verify_failed",
       "the aggregator's certificate is not signed by the authority in --tls-ca"},
      {"is not in peer certificate",
       "the aggregator's certificate does not name this host; connect to a name in it or give "
       "--tls-server-name"},
      {"hostname verification",
       "the aggregator's certificate does not name this host; connect to a name in it or give "
       "--tls-server-name"},
      {"wrong version number",
       "the aggregator does not speak TLS there; leave --tls-ca away or use its TLS port"},
      {"wrong_version_number",
       "the aggregator does not speak TLS there; leave --tls-ca away or use its TLS port"},
      {"certificate required",
       "the aggregator asks for a certificate; give --tls-cert and --tls-key"},
      {"bad certificate",
       "the aggregator does not accept this agent's certificate; check --tls-cert and --tls-key"},
      {"unknown ca",
       "the aggregator does not accept this agent's certificate; check --tls-cert and --tls-key"},
      {"handshak", "the TLS handshake failed; check --tls-ca, --tls-cert and --tls-key"},
      {"connection refused", "nothing listens there"},
      {"dns resolution failed", "the name cannot be resolved"},
      {"name resolution", "the name cannot be resolved"},
  };
  std::string hint;
  for (const Known& known : kKnown) {
    if (!absl::StrContains(message, known.text)) continue;
    hint = known.hint;
    break;
  }
  if (hint.empty() && !config.enabled() &&
      (absl::StrContains(message, "socket closed") || absl::StrContains(message, "reset"))) {
    hint = "the connection was closed at once; if the aggregator speaks TLS, give --tls-ca";
  }
  if (hint.empty()) return absl::StrCat(address, ": ", ToAbsl(grpc_message));
  return absl::StrCat(address, ": ", hint, " (", ToAbsl(grpc_message), ")");
}

}  // namespace fleetblame::agent
