// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/credentials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/connection_hint.h"
#include "common/pem_files.h"

namespace fleetblame::agent {
namespace {

absl::Status InFlag(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

}  // namespace

absl::StatusOr<KeyMaterial> ReadKeyMaterial(const TlsConfig& config) {
  KeyMaterial material;
  if (!config.ca.empty()) {
    auto ca = ReadAuthorityFile(config.ca);
    if (!ca.ok()) return InFlag("--tls-ca", ca.status());
    material.ca = std::move(ca->text);
  }
  if (config.cert.empty()) return material;
  auto cert = ReadCertificateFile(config.cert);
  if (!cert.ok()) return InFlag("--tls-cert", cert.status());
  auto key = ReadKeyFile(config.key);
  if (!key.ok()) return InFlag("--tls-key", key.status());
  if (auto status = CheckKeyFits(*cert, *key); !status.ok()) return InFlag("--tls-key", status);
  material.cert = std::move(cert->text);
  material.key = std::move(key->text);
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
  return absl::StrCat(address, ": ",
                      HintFor(config.enabled(), !config.cert.empty(), address, grpc_message).text);
}

}  // namespace fleetblame::agent
