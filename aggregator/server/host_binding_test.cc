// SPDX-License-Identifier: Apache-2.0
//
// With client certificates, who may speak for which host: the whole aggregator, with certificates
// that deploy/tls/make-certs made.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "aggregator/ingest/testing/sample_batch.h"
#include "aggregator/ingest/testing/scripted_agent.h"
#include "aggregator/server/aggregator_server.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

class HostBindingTest : public testing::Test {
 protected:
  HostBindingTest() {
    directory_ = testing::TempDir() + "/binding-" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::string command = "deploy/tls/make-certs " + directory_ +
                          " localhost 127.0.0.1 --host host-1.example host-2.example id-3 "
                          ">/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    config_.listen = "127.0.0.1:0";
    config_.metrics_address.clear();
    config_.data_dir = directory_ + "/store";
    config_.memory_limit_bytes = 256 << 20;
    config_.tls_cert = directory_ + "/server.crt";
    config_.tls_key = directory_ + "/server.key";
    config_.tls_client_ca = directory_ + "/ca.crt";
  }
  void Start() {
    StartError error;
    server_ = AggregatorServer::Start(config_, &error);
    ASSERT_NE(server_, nullptr) << error.status;
  }
  std::string Read(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(directory_ + "/" + name).rdbuf();
    EXPECT_FALSE(text.str().empty()) << name;
    return text.str();
  }
  // Says Hello with this certificate; how the aggregator took it.
  grpc::Status Register(const std::string& certificate, const std::string& host_id,
                        const std::string& hostname) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = Read("ca.crt");
    options.pem_cert_chain = Read(certificate + ".crt");
    options.pem_private_key = Read(certificate + ".key");
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    ScriptedAgent agent(grpc::CreateCustomChannel("localhost:" + std::to_string(server_->port()),
                                                  grpc::SslCredentials(options), arguments));
    v1::Hello hello = SampleHello(host_id);
    hello.set_hostname(hostname);
    if (agent.Register(hello).has_value()) return grpc::Status::OK;
    return agent.Finish();
  }
  void ExpectDenied(const grpc::Status& status, const std::string& text) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_TRUE(absl::StrContains(status.error_message(), text)) << status.error_message();
  }

  std::string directory_;
  ServerConfig config_;
  std::unique_ptr<AggregatorServer> server_;
};

TEST_F(HostBindingTest, ACertificateSpeaksForTheHostItNames) {
  Start();
  EXPECT_TRUE(Register("hosts/host-1.example", "id-1", "host-1.example").ok());
  EXPECT_TRUE(Register("hosts/id-3", "id-3", "any.example").ok());
  ExpectDenied(Register("hosts/host-2.example", "id-1", "host-1.example"),
               "names host-2.example, not host host-1.example");
  ExpectDenied(Register("hosts/host-2.example", "id-1", "host-2.example"),
               "known as host-1.example");
  ExpectDenied(Register("client", "id-1", "host-1.example"), "names fleetblame-client");

  // What is known of hosts stays known.
  server_.reset();
  Start();
  ExpectDenied(Register("hosts/host-2.example", "id-1", "host-2.example"),
               "known as host-1.example");
  EXPECT_TRUE(Register("hosts/host-1.example", "id-1", "host-1.example").ok());
}

TEST_F(HostBindingTest, ItCanBeTurnedOff) {
  config_.tls_bind_hosts = false;
  Start();
  EXPECT_TRUE(Register("client", "id-1", "host-1.example").ok());
}

}  // namespace
}  // namespace fleetblame::aggregator
