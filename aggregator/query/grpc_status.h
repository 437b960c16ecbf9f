// SPDX-License-Identifier: Apache-2.0
//
// absl::Status to grpc::Status; the codes have the same numbers. Pure.
#ifndef AGGREGATOR_QUERY_GRPC_STATUS_H_
#define AGGREGATOR_QUERY_GRPC_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace fleetblame::aggregator {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_GRPC_STATUS_H_
