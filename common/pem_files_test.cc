// SPDX-License-Identifier: Apache-2.0
#include "common/pem_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace fleetblame {
namespace {

class PemFilesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = testing::TempDir() + "/pem";
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Run("deploy/tls/make-certs " + directory_ + " localhost --host other");
    Run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=old -keyout " +
        Path("old.key") + " -out " + Path("old.csr"));
    Run("openssl x509 -req -days -1 -in " + Path("old.csr") + " -signkey " + Path("old.key") +
        " -out " + Path("old.crt"));
    Run("openssl pkey -aes128 -passout pass:x -in " + Path("server.key") + " -out " +
        Path("locked.key"));
    Run("cat " + Path("old.crt") + " " + Path("ca.crt") + " | tee " + Path("bundle.crt"));
    std::ofstream(Path("garbage.crt"))
        << "-----BEGIN CERTIFICATE-----\ngarbage\n-----END CERTIFICATE-----\n";
    std::ofstream(Path("empty.crt"));
  }
  static void Run(const std::string& command) {
    ASSERT_EQ(std::system((command + " >/dev/null 2>&1").c_str()), 0) << command;
  }
  static std::string Path(const std::string& name) { return directory_ + "/" + name; }
  // The error says `says` and names the file.
  template <typename T>
  static void ExpectBad(const absl::StatusOr<T>& result, const std::string& file,
                        const std::string& says) {
    ASSERT_FALSE(result.ok()) << file;
    EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    EXPECT_NE(std::string(result.status().message()).find(Path(file)), std::string::npos)
        << result.status();
    EXPECT_NE(std::string(result.status().message()).find(says), std::string::npos)
        << result.status();
  }

  static std::string directory_;
};

std::string PemFilesTest::directory_;

TEST_F(PemFilesTest, GoodFilesAreReadWhole) {
  const auto certificate = ReadCertificateFile(Path("server.crt"));
  const auto key = ReadKeyFile(Path("server.key"));
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(certificate->text.size(), std::filesystem::file_size(Path("server.crt")));
  EXPECT_TRUE(CheckKeyFits(*certificate, *key).ok());
  EXPECT_TRUE(ReadAuthorityFile(Path("ca.crt")).ok());
}

TEST_F(PemFilesTest, EachFaultIsNamed) {
  ExpectBad(ReadCertificateFile(Path("nothing.crt")), "nothing.crt", "No such file");
  ExpectBad(ReadCertificateFile(Path("")), "", "Is a directory");
  ExpectBad(ReadCertificateFile(Path("empty.crt")), "empty.crt", "no certificate");
  ExpectBad(ReadCertificateFile(Path("garbage.crt")), "garbage.crt", "no certificate");
  ExpectBad(ReadCertificateFile(Path("server.key")), "server.key", "no certificate");
  ExpectBad(ReadCertificateFile(Path("old.crt")), "old.crt", "has expired");
  ExpectBad(ReadAuthorityFile(Path("old.crt")), "old.crt", "has expired");
  ExpectBad(ReadKeyFile(Path("server.crt")), "server.crt", "no private key");
  ExpectBad(ReadKeyFile(Path("locked.key")), "locked.key", "pass phrase");
}

TEST_F(PemFilesTest, OneValidAuthorityOfABundleIsEnough) {
  EXPECT_TRUE(ReadAuthorityFile(Path("bundle.crt")).ok());
}

TEST_F(PemFilesTest, AKeyOfAnotherCertificate) {
  const auto certificate = ReadCertificateFile(Path("server.crt"));
  const auto key = ReadKeyFile(Path("client.key"));
  ASSERT_TRUE(certificate.ok() && key.ok());
  EXPECT_EQ(CheckKeyFits(*certificate, *key).message(),
            Path("client.key") + ": is not the key of the certificate in " + Path("server.crt"));
}

}  // namespace
}  // namespace fleetblame
