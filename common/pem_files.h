// SPDX-License-Identifier: Apache-2.0
//
// Certificates and private keys in PEM files, read and checked before a TLS library sees them: what
// it says of files that do not fit is logged in its own words or not at all.
//
// Threading: pure functions of the file system and the clock. Errors are FAILED_PRECONDITION; each
// names the file and says what is wrong with it.
#ifndef COMMON_PEM_FILES_H_
#define COMMON_PEM_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fleetblame {

struct PemFile {
  std::string path;
  std::string text;
};

// A certificate, perhaps with the chain behind it; the first one must be valid now.
absl::StatusOr<PemFile> ReadCertificateFile(const std::string& path);

// Certificates of authorities; one of them must be valid now.
absl::StatusOr<PemFile> ReadAuthorityFile(const std::string& path);

// A private key without a pass phrase.
absl::StatusOr<PemFile> ReadKeyFile(const std::string& path);

absl::Status CheckKeyFits(const PemFile& certificate, const PemFile& key);

}  // namespace fleetblame

#endif  // COMMON_PEM_FILES_H_
