// SPDX-License-Identifier: Apache-2.0
//
// Whether definitions are sane enough to be interned: numbers, sizes of texts and lists. Pure; any
// thread.
#ifndef AGGREGATOR_INGEST_DEFINITIONS_CHECK_H_
#define AGGREGATOR_INGEST_DEFINITIONS_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::aggregator {

uint64_t CountDefinitions(const v1::Definitions& definitions);

// INVALID_ARGUMENT with a sentence when they are malformed, RESOURCE_EXHAUSTED when there are more
// than `max_definitions`.
absl::Status CheckDefinitions(const v1::Definitions& definitions, uint64_t max_definitions);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_DEFINITIONS_CHECK_H_
