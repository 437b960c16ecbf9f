// SPDX-License-Identifier: Apache-2.0
//
// The key material for TLS, read from files that may be replaced at any time, and the plain words
// for what OpenSSL says when it does not fit.
//
// Threading: pure functions of the file system.
#ifndef NODE_AGENT_STREAM_CREDENTIALS_H_
#define NODE_AGENT_STREAM_CREDENTIALS_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "node-agent/config/config.h"

namespace fleetblame::agent {

struct KeyMaterial {
  std::string ca;
  std::string cert;
  std::string key;
  bool operator==(const KeyMaterial&) const = default;
};

// Empty when TLS is off. The error names the flag and the file that cannot be read, does not hold
// what it should, has expired, or does not fit the other.
absl::StatusOr<KeyMaterial> ReadKeyMaterial(const TlsConfig& config);

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const TlsConfig& config,
                                                          const KeyMaterial& material);

// Why a connection failed, in one sentence with the way out if there is a known one.
std::string ExplainConnectionError(const TlsConfig& config, const std::string& address,
                                   std::string_view grpc_message);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_STREAM_CREDENTIALS_H_
