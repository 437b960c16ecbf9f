// SPDX-License-Identifier: Apache-2.0
#include "cli/client.h"

#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/terminal.h"

namespace fleetblame::cli {
namespace {

// Large enough for any answer within the aggregator's own limits.
constexpr int kMaxMessageBytes = 256 << 20;

absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || content.str().find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", path, ": not a readable PEM file; check path and permissions"));
  }
  return content.str();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const ClientOptions& o) {
  if (o.tls_ca.empty() && o.tls_cert.empty() && o.tls_key.empty()) {
    return grpc::InsecureChannelCredentials();
  }
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together; give both");
  }
  grpc::SslCredentialsOptions ssl;
  for (auto [flag, path, target] : {std::tuple{"--tls-ca", &o.tls_ca, &ssl.pem_root_certs},
                                    std::tuple{"--tls-cert", &o.tls_cert, &ssl.pem_cert_chain},
                                    std::tuple{"--tls-key", &o.tls_key, &ssl.pem_private_key}}) {
    auto pem = ReadPem(flag, *path);
    if (!pem.ok()) return pem.status();
    *target = *std::move(pem);
  }
  return grpc::SslCredentials(ssl);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options) {
  auto credentials = Credentials(options);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetUserAgentPrefix("fleetblame-cli");
  if (!options.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_server_name);
  }
  auto channel = grpc::CreateCustomChannel(options.aggregator, *credentials, arguments);
  std::unique_ptr<Client> client(new Client(options));
  client->query_ = v1::Query::NewStub(channel);
  client->control_ = v1::Control::NewStub(channel);
  return client;
}

std::unique_ptr<grpc::ClientContext> Client::NewContext(bool deadline) const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (deadline) context->set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  return context;
}

int ReportFailure(const grpc::Status& status, const ClientOptions& options) {
  std::string message = Printable(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      std::cerr << "fleetblame: no aggregator answers at " << options.aggregator << " (" << message
                << "); check that it runs there, or give its address with --aggregator or "
                   "FLEETBLAME_AGGREGATOR";
      if (absl::StrContains(absl::AsciiStrToLower(message), "ssl") ||
          absl::StrContains(message, "handshake") || absl::StrContains(message, "Socket closed")) {
        std::cerr << "; one side may want TLS and the other not (--tls-ca)";
      }
      std::cerr << "\n";
      return kExitUnreachable;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      std::cerr << "fleetblame: " << options.aggregator << " refuses this client: " << message
                << "; give --tls-cert and --tls-key\n";
      return kExitUnreachable;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      std::cerr << "fleetblame: no answer within " << absl::FormatDuration(options.timeout)
                << "; narrow the query with --hosts or --since, or raise --timeout\n";
      return kExitQueryFailed;
    case grpc::StatusCode::UNIMPLEMENTED:
      std::cerr << "fleetblame: " << options.aggregator
                << " does not know this query; it is not a fleetblame aggregator or an older one\n";
      return kExitQueryFailed;
    case grpc::StatusCode::INVALID_ARGUMENT:
      std::cerr << "fleetblame: " << message << "\n";
      return kExitUsage;
    default:
      std::cerr << "fleetblame: " << message << "\n";
      return kExitQueryFailed;
  }
}

}  // namespace fleetblame::cli
