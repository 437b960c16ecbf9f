// SPDX-License-Identifier: Apache-2.0
#include "cli/client.h"

#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/terminal.h"
#include "common/connection_hint.h"
#include "common/host_port.h"
#include "common/pem_files.h"

namespace fleetblame::cli {
namespace {

// Large enough for any answer within the aggregator's own limits.
constexpr int kMaxMessageBytes = 256 << 20;

absl::Status InFlag(const char* flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

bool UsesTls(const ClientOptions& o) { return !o.tls_ca.empty() || !o.tls_cert.empty(); }

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const ClientOptions& o) {
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together; give both");
  }
  if (!UsesTls(o)) {
    if (o.tls_server_name.empty()) return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError("--tls-server-name needs TLS; give --tls-ca");
  }
  grpc::SslCredentialsOptions ssl;
  if (!o.tls_ca.empty()) {
    auto ca = ReadAuthorityFile(o.tls_ca);
    if (!ca.ok()) return InFlag("--tls-ca", ca.status());
    ssl.pem_root_certs = std::move(ca->text);
  }
  if (!o.tls_cert.empty()) {
    auto cert = ReadCertificateFile(o.tls_cert);
    if (!cert.ok()) return InFlag("--tls-cert", cert.status());
    auto key = ReadKeyFile(o.tls_key);
    if (!key.ok()) return InFlag("--tls-key", key.status());
    if (auto status = CheckKeyFits(*cert, *key); !status.ok()) return InFlag("--tls-key", status);
    ssl.pem_cert_chain = std::move(cert->text);
    ssl.pem_private_key = std::move(key->text);
  }
  return grpc::SslCredentials(ssl);
}

// "no aggregator answers", why, and the way out.
std::string Unreachable(const std::string& message, const ClientOptions& options) {
  const ConnectionHint hint =
      HintFor(UsesTls(options), !options.tls_cert.empty(), options.aggregator, message);
  std::string text = absl::StrCat("no aggregator answers at ", options.aggregator, ": ", hint.text);
  if (hint.way_out) return text;
  return absl::StrCat(text,
                      "; check that it runs there, or give its address with --aggregator or "
                      "FLEETBLAME_AGGREGATOR");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options) {
  if (!absl::StartsWith(options.aggregator, "unix:")) {
    if (auto status = CheckHostPort(options.aggregator); !status.ok()) {
      return InFlag("--aggregator", status);
    }
  }
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
  client->channel_ = std::move(channel);
  return client;
}

std::unique_ptr<grpc::ClientContext> Client::NewContext(bool deadline) const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (deadline) context->set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  return context;
}

int ReportFailure(const grpc::Status& status, const Client& client) {
  const ClientOptions& options = client.options();
  std::string message = Printable(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      std::cerr << "fleetblame: " << Unreachable(message, options) << "\n";
      return kExitUnreachable;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      std::cerr << "fleetblame: " << options.aggregator << " refuses this client: " << message
                << "; give --tls-cert and --tls-key\n";
      return kExitUnreachable;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (!client.connected()) {
        std::cerr << "fleetblame: "
                  << Unreachable(absl::StrCat("no connection within ",
                                              absl::FormatDuration(options.timeout)),
                                 options)
                  << "\n";
        return kExitUnreachable;
      }
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
