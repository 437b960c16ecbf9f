// SPDX-License-Identifier: Apache-2.0
//
// Plain words and the way out for what gRPC and OpenSSL say when a connection to the aggregator
// fails. Agent and command line have the same flags and say the same.
//
// Threading: pure functions.
#ifndef COMMON_CONNECTION_HINT_H_
#define COMMON_CONNECTION_HINT_H_

#include <string>
#include <string_view>

namespace fleetblame {

struct ConnectionHint {
  // One sentence: what is wrong, and what gRPC said where that adds something. gRPC's words alone
  // when they are not known.
  std::string text;
  bool way_out = false;  // the sentence says what to do
};

// `tls`: this side speaks TLS; `certificate`: it has shown one of its own. `address` is as it was
// given with --aggregator.
ConnectionHint HintFor(bool tls, bool certificate, std::string_view address,
                       std::string_view grpc_message);

}  // namespace fleetblame

#endif  // COMMON_CONNECTION_HINT_H_
