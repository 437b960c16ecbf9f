// SPDX-License-Identifier: Apache-2.0
//
// Sends gRPC's own log lines through common/log.h, so that a daemon writes one
// format only.
#ifndef COMMON_GRPC_LOG_H_
#define COMMON_GRPC_LOG_H_

namespace fleetblame {

// Call once, before the first use of gRPC.
void RouteGrpcLog();

}  // namespace fleetblame

#endif  // COMMON_GRPC_LOG_H_
