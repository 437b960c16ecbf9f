// SPDX-License-Identifier: Apache-2.0
#include "aggregator/server/tls.h"

#include "common/pem_files.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace fleetblame::aggregator {
namespace {

constexpr unsigned kReloadSeconds = 10;

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.cert.empty()) return absl::OkStatus();
  absl::StatusOr<PemFile> cert = ReadCertificateFile(files.cert);
  if (!cert.ok()) return cert.status();
  absl::StatusOr<PemFile> key = ReadKeyFile(files.key);
  if (!key.ok()) return key.status();
  if (absl::Status status = CheckKeyFits(*cert, *key); !status.ok()) return status;
  if (files.client_ca.empty()) return absl::OkStatus();
  return ReadAuthorityFile(files.client_ca).status();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> NewServerCredentials(
    const TlsFiles& files) {
  if (files.cert.empty()) return grpc::InsecureServerCredentials();
  absl::Status status = CheckTlsFiles(files);
  if (!status.ok()) return status;
  using grpc::experimental::FileWatcherCertificateProvider;
  std::shared_ptr<FileWatcherCertificateProvider> provider;
  if (files.client_ca.empty()) {
    provider =
        std::make_shared<FileWatcherCertificateProvider>(files.key, files.cert, kReloadSeconds);
  } else {
    provider = std::make_shared<FileWatcherCertificateProvider>(files.key, files.cert,
                                                                files.client_ca, kReloadSeconds);
  }
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  if (credentials == nullptr) {
    return absl::FailedPreconditionError("the TLS library refused the server's credentials");
  }
  return credentials;
}

}  // namespace fleetblame::aggregator
