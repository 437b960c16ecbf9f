// SPDX-License-Identifier: Apache-2.0
#include "aggregator/server/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace fleetblame::aggregator {
namespace {

constexpr unsigned kReloadSeconds = 10;

absl::Status Bad(const std::string& file, absl::string_view what) {
  ERR_clear_error();
  return absl::FailedPreconditionError(absl::StrCat(file, ": ", what));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return absl::FailedPreconditionError(
        absl::StrCat("read ", path, ": ", std::strerror(errno != 0 ? errno : EIO),
                     "; the aggregator's user must be able to read it"));
  }
  return text.str();
}

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct CertFree {
  void operator()(X509* cert) const { X509_free(cert); }
};
struct KeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Cert = std::unique_ptr<X509, CertFree>;
using Key = std::unique_ptr<EVP_PKEY, KeyFree>;

std::unique_ptr<BIO, BioFree> Open(const std::string& pem) {
  return std::unique_ptr<BIO, BioFree>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// A key with a pass phrase must not make the daemon ask a terminal for it.
int NoPassPhrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Cert> LoadCertificate(const std::string& path) {
  absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok()) return pem.status();
  Cert cert(PEM_read_bio_X509(Open(*pem).get(), nullptr, NoPassPhrase, nullptr));
  if (cert == nullptr) return Bad(path, "holds no certificate in PEM form");
  if (X509_cmp_current_time(X509_get0_notAfter(cert.get())) < 0) {
    return Bad(path, "the certificate has expired; renew it");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(cert.get())) > 0) {
    return Bad(path, "the certificate is not valid yet; is the clock of this machine right?");
  }
  return cert;
}

absl::StatusOr<Key> LoadKey(const std::string& path) {
  absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok()) return pem.status();
  Key key(PEM_read_bio_PrivateKey(Open(*pem).get(), nullptr, NoPassPhrase, nullptr));
  if (key == nullptr) return Bad(path, "holds no private key in PEM form without a pass phrase");
  return key;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.cert.empty()) return absl::OkStatus();
  absl::StatusOr<Cert> cert = LoadCertificate(files.cert);
  if (!cert.ok()) return cert.status();
  absl::StatusOr<Key> key = LoadKey(files.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(cert->get(), key->get()) != 1) {
    return Bad(files.key, absl::StrCat("is not the key of the certificate in ", files.cert));
  }
  if (files.client_ca.empty()) return absl::OkStatus();
  return LoadCertificate(files.client_ca).status();
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
