// SPDX-License-Identifier: Apache-2.0
//
// TLS as agents and people meet it: the right certificate gets in, no or a wrong one does not, and
// renewed files are used without a restart.
#include "aggregator/server/tls.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class TlsTest : public testing::Test {
 protected:
  // A fresh authority with server and client certificates in a directory of this name.
  std::string Make(const std::string& name) {
    std::string directory = testing::TempDir() + "/tls-" + name;
    std::filesystem::remove_all(directory);
    std::string command = "deploy/tls/make-certs " + directory + " localhost 127.0.0.1 >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return directory;
  }
  int Serve(const TlsFiles& files) {
    auto credentials = NewServerCredentials(files);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port);
    builder.RegisterCallbackGenericService(&anything_);
    server_ = builder.BuildAndStart();
    return port;
  }
  bool Connects(int port, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel =
        grpc::CreateCustomChannel("localhost:" + std::to_string(port), credentials, arguments);
    return channel->WaitForConnected(std::chrono::system_clock::now() +
                                     std::chrono::milliseconds(1500));
  }
  static std::shared_ptr<grpc::ChannelCredentials> Client(const std::string& trusted,
                                                          const std::string& own = "") {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = Read(trusted + "/ca.crt");
    if (!own.empty()) {
      options.pem_cert_chain = Read(own + "/client.crt");
      options.pem_private_key = Read(own + "/client.key");
    }
    return grpc::SslCredentials(options);
  }
  static TlsFiles Files(const std::string& directory, bool mutual) {
    return {directory + "/server.crt", directory + "/server.key",
            mutual ? directory + "/ca.crt" : ""};
  }

  grpc::CallbackGenericService anything_;  // answers UNIMPLEMENTED
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TlsTest, ServerIsKnownByItsAuthority) {
  std::string ours = Make("ours"), theirs = Make("theirs");
  int port = Serve(Files(ours, false));
  EXPECT_TRUE(Connects(port, Client(ours)));
  EXPECT_FALSE(Connects(port, Client(theirs)));
}

TEST_F(TlsTest, ClientsNeedACertificateWhenAsked) {
  std::string ours = Make("ours2"), theirs = Make("theirs2");
  int port = Serve(Files(ours, true));
  EXPECT_TRUE(Connects(port, Client(ours, ours)));
  // TLS 1.3 tells the client of its missing certificate only after the handshake: what counts is
  // that no call gets through.
  auto call_gets_through = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    auto channel = grpc::CreateChannel("localhost:" + std::to_string(port), credentials);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1500));
    grpc::ByteBuffer in, out;
    grpc::Slice empty("");
    in = grpc::ByteBuffer(&empty, 1);
    grpc::internal::RpcMethod method("/x/Y", grpc::internal::RpcMethod::NORMAL_RPC, channel);
    grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer,
                                                            grpc::ByteBuffer, grpc::ByteBuffer>(
        channel.get(), method, &context, in, &out);
    // Whoever is let in hears that there is no such method.
    return status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  };
  EXPECT_TRUE(call_gets_through(Client(ours, ours)));
  EXPECT_FALSE(call_gets_through(Client(ours)));
  EXPECT_FALSE(call_gets_through(Client(ours, theirs)));
}

TEST_F(TlsTest, RenewedFilesAreUsed) {
  std::string served = Make("served"), renewed = Make("renewed");
  int port = Serve(Files(served, false));
  EXPECT_FALSE(Connects(port, Client(renewed)));
  auto client = Client(renewed);
  for (const char* name : {"server.crt", "server.key"}) {
    std::filesystem::copy_file(renewed + "/" + name, served + "/" + name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  bool connected = false;
  for (int i = 0; i < 20 && !connected; ++i) connected = Connects(port, client);
  EXPECT_TRUE(connected);
}

TEST_F(TlsTest, UnusableFilesAreNamed) {
  std::string ours = Make("ours3"), theirs = Make("theirs3");
  std::string nothing = ours + "/nothing";
  auto complains_of = [](const TlsFiles& files, const std::string& text) {
    absl::Status status = CheckTlsFiles(files);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
  };
  EXPECT_TRUE(CheckTlsFiles({}).ok());
  EXPECT_TRUE(CheckTlsFiles(Files(ours, true)).ok());
  complains_of({nothing, ours + "/server.key", ""}, nothing);
  complains_of({ours + "/server.crt", nothing, ""}, nothing);
  complains_of({ours + "/server.crt", ours + "/server.key", nothing}, nothing);
  complains_of({ours + "/server.crt", theirs + "/server.key", ""}, "is not the key");
  complains_of({ours + "/server.key", ours + "/server.key", ""}, "no certificate");
  complains_of({ours + "/server.crt", ours + "/server.crt", ""}, "no private key");
}

}  // namespace
}  // namespace fleetblame::aggregator
