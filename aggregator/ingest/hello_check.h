// SPDX-License-Identifier: Apache-2.0
//
// Whether a Hello is fit to be registered. Pure; any thread.
#ifndef AGGREGATOR_INGEST_HELLO_CHECK_H_
#define AGGREGATOR_INGEST_HELLO_CHECK_H_

#include "absl/status/status.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::aggregator {

inline constexpr uint32_t kProtocolVersion = 1;

// FAILED_PRECONDITION with a sentence for the agent's log when it is not.
absl::Status CheckHello(const v1::Hello& hello);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_HELLO_CHECK_H_
