// SPDX-License-Identifier: Apache-2.0
//
// Valid Hellos and batches, small and always the same, for tests to send as they are or to spoil.
#ifndef AGGREGATOR_INGEST_TESTING_SAMPLE_BATCH_H_
#define AGGREGATOR_INGEST_TESTING_SAMPLE_BATCH_H_

#include <cstdint>
#include <string>

#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::aggregator {

inline constexpr uint64_t kSampleEpoch = 77;
inline constexpr uint64_t kSampleDictionary = 4711;

v1::Hello SampleHello(const std::string& host_id = "host-1", uint64_t spool_epoch = kSampleEpoch);

// Everything that SampleBatch refers to: intent 1, actor 1, device 1, file 1.
v1::Definitions SampleDefinitions();

// `rows` rows of a window that ended a minute ago.
v1::Batch SampleBatch(uint64_t seq, int rows = 3, bool with_definitions = true);

// The same with rows compressed.
v1::Batch Compressed(v1::Batch batch);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_TESTING_SAMPLE_BATCH_H_
