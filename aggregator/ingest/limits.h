// SPDX-License-Identifier: Apache-2.0
//
// What the aggregator lets a peer do. Everything that a stranger can make large or last long has
// its bound here. Plain values.
#ifndef AGGREGATOR_INGEST_LIMITS_H_
#define AGGREGATOR_INGEST_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace fleetblame::aggregator {

struct IngestLimits {
  // ---- one message
  uint64_t max_message_bytes = 4 << 20;  // told in HelloAck; larger ones are answered with SPLIT
  uint64_t max_rows_plain_bytes = 8 << 20;
  uint64_t max_rows_per_batch = 1 << 16;
  uint64_t max_definitions_per_message = 1 << 16;
  uint64_t max_coverage_per_batch = 16384;
  uint64_t max_losses_per_batch = 1024;
  uint64_t max_gaps_per_batch = 1024;
  uint64_t max_trace_events_per_message = 4096;

  // ---- one stream
  // The first message waits for no memory that others' batches hold, so it has its own bound.
  uint64_t max_hello_bytes = 128 << 10;
  uint64_t credit_bytes = 8 << 20;  // told in HelloAck and Ack
  // Definitions of one host: a burst, and how fast the allowance comes back.
  uint64_t definitions_burst = 200'000;
  uint64_t definitions_per_second = 2'000;
  absl::Duration hello_timeout = absl::Seconds(10);
  // How long a batch may wait for the answer to Need.
  absl::Duration definitions_timeout = absl::Seconds(15);
  absl::Duration stream_lifetime = absl::Hours(1);  // ±10 %
  // A stream that is to end and whose peer does not read is cut after this.
  absl::Duration finish_timeout = absl::Seconds(5);

  // ---- all streams
  size_t max_streams = 20'000;
  size_t max_hosts = 100'000;
  // Decoded and waiting for the disk.
  uint64_t inflight_bytes = 256 << 20;

  // ---- time
  // A window that ends further ahead of the aggregator's clock is refused.
  absl::Duration max_future = absl::Hours(24);
  absl::Duration max_window = absl::Hours(24 * 7);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_LIMITS_H_
