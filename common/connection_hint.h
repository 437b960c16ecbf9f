// SPDX-License-Identifier: Apache-2.0
//
// Plain words and the way out for what gRPC and OpenSSL say when a connection to the aggregator
// fails. Agent and command line have the same flags and say the same.
//
// Threading: pure functions.
#ifndef COMMON_CONNECTION_HINT_H_
#define COMMON_CONNECTION_HINT_H_

#include <string_view>

namespace fleetblame {

struct ConnectionHint {
  std::string_view text;   // empty when the message is not a known one
  bool about_tls = false;  // the peer was reached, and TLS is what is wrong
};

// `tls`: this side speaks TLS; `certificate`: it has shown one of its own.
ConnectionHint HintFor(bool tls, bool certificate, std::string_view grpc_message);

}  // namespace fleetblame

#endif  // COMMON_CONNECTION_HINT_H_
