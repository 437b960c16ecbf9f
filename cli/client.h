// SPDX-License-Identifier: Apache-2.0
//
// The connection to the aggregator, and what a gRPC status means to the person at the keyboard.
// One thread.
#ifndef CLI_CLIENT_H_
#define CLI_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/control.grpc.pb.h"
#include "proto/fleetblame/v1/query.grpc.pb.h"

namespace fleetblame::cli {

struct ClientOptions {
  std::string aggregator = "127.0.0.1:7443";
  // PEM files. With a CA the connection uses TLS; certificate and key are for mTLS.
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  // Name in the server's certificate when it differs from the address.
  std::string tls_server_name;
  absl::Duration timeout = absl::Seconds(30);
};

class Client {
 public:
  // Reads the TLS files; does not connect yet. INVALID_ARGUMENT names the flag and what is wrong.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options);

  v1::Query::Stub& query() { return *query_; }
  v1::Control::Stub& control() { return *control_; }
  // A context with the configured deadline (a streaming call passes `deadline` = false).
  std::unique_ptr<grpc::ClientContext> NewContext(bool deadline = true) const;
  const ClientOptions& options() const { return options_; }
  // Whether there is a connection.
  bool connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }

 private:
  explicit Client(ClientOptions options) : options_(std::move(options)) {}

  ClientOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Query::Stub> query_;
  std::unique_ptr<v1::Control::Stub> control_;
};

// Documented in docs/cli.md.
enum ExitCode {
  kExitOk = 0,
  kExitQueryFailed = 1,
  kExitUsage = 2,
  kExitUnreachable = 3,
};

// Prints one sentence with the way out to stderr and returns the exit code.
int ReportFailure(const grpc::Status& status, const Client& client);

}  // namespace fleetblame::cli

#endif  // CLI_CLIENT_H_
