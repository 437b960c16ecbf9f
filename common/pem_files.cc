// SPDX-License-Identifier: Apache-2.0
#include "common/pem_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame {
namespace {

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

absl::Status Bad(const std::string& path, std::string_view what) {
  ERR_clear_error();
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", ToAbsl(what)));
}

absl::StatusOr<PemFile> Read(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || in.bad() || (text.fail() && errno != 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("read ", path, ": ", std::strerror(errno != 0 ? errno : EIO),
                     "; it must exist, and whom this runs as must be able to read it"));
  }
  return PemFile{path, text.str()};
}

// A key with a pass phrase must not make a program ask a terminal for it.
int NoPassPhrase(char*, int, int, void*) { return -1; }

std::vector<Cert> Certificates(const PemFile& file) {
  std::unique_ptr<BIO, BioFree> bio(
      BIO_new_mem_buf(file.text.data(), static_cast<int>(file.text.size())));
  std::vector<Cert> certificates;
  while (Cert cert{PEM_read_bio_X509(bio.get(), nullptr, NoPassPhrase, nullptr)}) {
    certificates.push_back(std::move(cert));
  }
  ERR_clear_error();
  return certificates;
}

Key PrivateKey(const PemFile& file) {
  std::unique_ptr<BIO, BioFree> bio(
      BIO_new_mem_buf(file.text.data(), static_cast<int>(file.text.size())));
  return Key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassPhrase, nullptr));
}

// Why this certificate is of no use now; empty when it is.
std::string_view OutOfDate(const X509* cert) {
  if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
    return "the certificate has expired; renew it";
  }
  if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
    return "the certificate is not valid yet; is the clock of this machine right?";
  }
  return "";
}

}  // namespace

absl::StatusOr<PemFile> ReadCertificateFile(const std::string& path) {
  absl::StatusOr<PemFile> file = Read(path);
  if (!file.ok()) return file;
  const std::vector<Cert> certificates = Certificates(*file);
  if (certificates.empty()) return Bad(path, "holds no certificate in PEM form");
  const std::string_view fault = OutOfDate(certificates.front().get());
  if (!fault.empty()) return Bad(path, fault);
  return file;
}

absl::StatusOr<PemFile> ReadAuthorityFile(const std::string& path) {
  absl::StatusOr<PemFile> file = Read(path);
  if (!file.ok()) return file;
  const std::vector<Cert> certificates = Certificates(*file);
  if (certificates.empty()) return Bad(path, "holds no certificate in PEM form");
  std::string_view fault;
  for (const Cert& certificate : certificates) {
    fault = OutOfDate(certificate.get());
    if (fault.empty()) return file;
  }
  return Bad(path, fault);
}

absl::StatusOr<PemFile> ReadKeyFile(const std::string& path) {
  absl::StatusOr<PemFile> file = Read(path);
  if (!file.ok()) return file;
  if (PrivateKey(*file) == nullptr) {
    return Bad(path, "holds no private key in PEM form without a pass phrase");
  }
  return file;
}

absl::Status CheckKeyFits(const PemFile& certificate, const PemFile& key) {
  const std::vector<Cert> certificates = Certificates(certificate);
  const Key private_key = PrivateKey(key);
  if (certificates.empty() || private_key == nullptr ||
      X509_check_private_key(certificates.front().get(), private_key.get()) != 1) {
    return Bad(key.path, absl::StrCat("is not the key of the certificate in ", certificate.path));
  }
  return absl::OkStatus();
}

}  // namespace fleetblame
