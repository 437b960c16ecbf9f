// SPDX-License-Identifier: Apache-2.0
//
// Sends gRPC's own log lines through common/log.h, so that a daemon writes one
// format only.
#pragma once

namespace fleetblame {

// Call once, before the first use of gRPC.
void RouteGrpcLog();

}  // namespace fleetblame
