// SPDX-License-Identifier: Apache-2.0
//
// The stream over TLS: with and without client certificates, with certificates that do not fit, and
// with files that are replaced while the agent runs.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node-agent/stream/credentials.h"
#include "node-agent/stream/stream_client.h"
#include "node-agent/stream/testing/fake_collector.h"

namespace fleetblame::agent {
namespace {

using testing::HasSubstr;

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/tls-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    MakeAuthority("ca");
    MakeCertificate("ca", "server", "localhost");
    MakeCertificate("ca", "client", "agent");
    options_.identity.host_id = "host-1";
    options_.first_backoff = absl::Milliseconds(5);
    options_.longest_backoff = absl::Milliseconds(50);
    options_.certificate_check_interval = absl::Milliseconds(100);
    auto spool = Spool::Open({.directory = directory_ + "/spool", .sync = false});
    EXPECT_TRUE(spool.ok());
    spool_ = *std::move(spool);
    auto dictionary = Dictionary::Open({.directory = directory_ + "/dictionary", .sync = false});
    EXPECT_TRUE(dictionary.ok());
    dictionary_ = *std::move(dictionary);
  }
  ~TlsTest() override {
    client_.reset();
    collector_.Shutdown();
    std::filesystem::remove_all(directory_);
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Slurp(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(Path(name)).rdbuf();
    return text.str();
  }
  void Openssl(const std::string& arguments) {
    const std::string command =
        absl::StrCat("cd ", directory_, " && openssl ", arguments, " >/dev/null 2>&1");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  void MakeAuthority(const std::string& name) {
    Openssl(absl::StrCat("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 ",
                         "-subj /CN=", name, " -keyout ", name, ".key -out ", name, ".crt"));
  }
  void MakeCertificate(const std::string& authority, const std::string& name,
                       const std::string& host) {
    Openssl(absl::StrCat("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=", host,
                         " -keyout ", name, ".key -out ", name, ".csr"));
    std::ofstream(Path(name + ".ext")) << "subjectAltName=DNS:" << host << "\n";
    Openssl(absl::StrCat("x509 -req -days 2 -in ", name, ".csr -CA ", authority, ".crt -CAkey ",
                         authority, ".key -CAcreateserial -extfile ", name, ".ext -out ", name,
                         ".crt"));
  }

  void StartServer(const std::string& certificate, bool mutual) {
    grpc::SslServerCredentialsOptions options(
        mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
               : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    options.pem_root_certs = Slurp("ca.crt");
    options.pem_key_cert_pairs = {{Slurp(certificate + ".key"), Slurp(certificate + ".crt")}};
    collector_.Start(grpc::SslServerCredentials(options));
  }

  void StartClient() {
    // The certificates name localhost, the collector listens on 127.0.0.1.
    const std::string address = collector_.address();
    options_.address = "localhost" + address.substr(address.rfind(':'));
    client_ =
        std::make_unique<StreamClient>(options_, spool_.get(), dictionary_.get(), Session::Hooks());
    client_->Start();
  }

  void AppendWindow() {
    v1::Batch batch;
    batch.mutable_window()->set_start_boot_ns(1);
    batch.mutable_window()->set_end_boot_ns(2);
    std::vector<v1::Batch> batches;
    batches.push_back(std::move(batch));
    spool_->Append(std::move(batches));
    if (client_ != nullptr) client_->Notify();
  }

  // Waits until a connection failed, and returns why.
  std::string FirstError() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (absl::Now() < deadline) {
      const StreamStats stats = client_->stats();
      if (!stats.last_error.empty()) return stats.last_error;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return "no error came";
  }

  std::string directory_;
  FakeCollector collector_;
  StreamOptions options_;
  std::unique_ptr<Spool> spool_;
  std::unique_ptr<Dictionary> dictionary_;
  std::unique_ptr<StreamClient> client_;
};

TEST_F(TlsTest, ServerCertificate) {
  StartServer("server", /*mutual=*/false);
  options_.tls.ca = Path("ca.crt");
  StartClient();
  AppendWindow();
  EXPECT_TRUE(collector_.WaitForDurable(1));
  EXPECT_TRUE(ProbeAggregator(options_.address, options_.tls, absl::Seconds(5)).ok());
}

TEST_F(TlsTest, MutualTls) {
  StartServer("server", /*mutual=*/true);
  options_.tls.ca = Path("ca.crt");
  options_.tls.cert = Path("client.crt");
  options_.tls.key = Path("client.key");
  StartClient();
  AppendWindow();
  EXPECT_TRUE(collector_.WaitForDurable(1));
}

TEST_F(TlsTest, AnotherAuthorityIsNamedAsTheCause) {
  MakeAuthority("other");
  StartServer("server", /*mutual=*/false);
  options_.tls.ca = Path("other.crt");
  StartClient();
  EXPECT_THAT(FirstError(), HasSubstr("not signed by the authority in --tls-ca"));
}

TEST_F(TlsTest, AnotherNameIsNamedAsTheCause) {
  MakeCertificate("ca", "elsewhere", "elsewhere.example");
  StartServer("elsewhere", /*mutual=*/false);
  options_.tls.ca = Path("ca.crt");
  StartClient();
  EXPECT_THAT(FirstError(), HasSubstr("--tls-server-name"));
  // `--check` finds it before the service is started.
  const absl::Status probed = ProbeAggregator(options_.address, options_.tls, absl::Seconds(5));
  EXPECT_THAT(std::string(probed.message()), HasSubstr("does not name this host"));
  // And the way out works.
  client_.reset();
  options_.tls.server_name = "elsewhere.example";
  EXPECT_TRUE(ProbeAggregator(options_.address, options_.tls, absl::Seconds(5)).ok());
  StartClient();
  AppendWindow();
  EXPECT_TRUE(collector_.WaitForDurable(1));
}

// An address in numbers has to stand in the certificate as one.
TEST_F(TlsTest, AnAddressInNumbersIsComparedToo) {
  StartServer("server", /*mutual=*/false);
  options_.tls.ca = Path("ca.crt");
  const absl::Status probed = ProbeAggregator(collector_.address(), options_.tls, absl::Seconds(5));
  EXPECT_THAT(std::string(probed.message()), HasSubstr("does not name this host"));
}

TEST_F(TlsTest, PlainTextOnOneSideOnly) {
  collector_.Start();
  options_.tls.ca = Path("ca.crt");
  StartClient();
  EXPECT_THAT(FirstError(), HasSubstr("does not speak TLS"));
  client_.reset();
  collector_.Shutdown();
  StartServer("server", /*mutual=*/false);
  options_.tls.ca.clear();
  StartClient();
  EXPECT_THAT(FirstError(), HasSubstr("--tls-ca"));
}

TEST_F(TlsTest, AMissingClientCertificateIsAnErrorThatMentionsTls) {
  StartServer("server", /*mutual=*/true);
  options_.tls.ca = Path("ca.crt");
  StartClient();
  EXPECT_THAT(FirstError(), HasSubstr("--tls-cert"));
  AppendWindow();
  EXPECT_FALSE(collector_.WaitForDurable(1, absl::Milliseconds(300)));
}

TEST_F(TlsTest, NewCertificatesAreTakenUpWithoutARestart) {
  StartServer("server", /*mutual=*/true);
  options_.tls.ca = Path("ca.crt");
  options_.tls.cert = Path("client.crt");
  options_.tls.key = Path("client.key");
  StartClient();
  AppendWindow();
  ASSERT_TRUE(collector_.WaitForDurable(1));
  const size_t hellos = collector_.Hellos().size();
  MakeCertificate("ca", "client", "agent");
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (collector_.Hellos().size() == hellos && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GT(collector_.Hellos().size(), hellos);
  AppendWindow();
  EXPECT_TRUE(collector_.WaitForDurable(2));
}

TEST_F(TlsTest, FilesThatAreMissingOrNoPemAreNamed) {
  TlsConfig config;
  config.ca = Path("nothing.crt");
  auto material = ReadKeyMaterial(config);
  ASSERT_FALSE(material.ok());
  EXPECT_THAT(std::string(material.status().message()), HasSubstr("--tls-ca"));
  EXPECT_THAT(std::string(material.status().message()), HasSubstr("nothing.crt"));
  std::ofstream(Path("nothing.crt")) << "hello";
  material = ReadKeyMaterial(config);
  ASSERT_FALSE(material.ok());
  EXPECT_THAT(std::string(material.status().message()), HasSubstr("no certificate in PEM form"));
}

TEST_F(TlsTest, AKeyThatDoesNotFitIsNamedBeforeConnecting) {
  TlsConfig config;
  config.ca = Path("ca.crt");
  config.cert = Path("client.crt");
  config.key = Path("server.key");
  const auto material = ReadKeyMaterial(config);
  ASSERT_FALSE(material.ok());
  EXPECT_THAT(std::string(material.status().message()),
              HasSubstr("--tls-key: " + Path("server.key") + ": is not the key"));
}

}  // namespace
}  // namespace fleetblame::agent
