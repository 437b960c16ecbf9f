// SPDX-License-Identifier: Apache-2.0
//
// What ingest tells at /metrics. No label names a peer: their number is not ours to choose.
// docs/aggregator.md explains each.
//
// Threading: any thread.
#ifndef AGGREGATOR_INGEST_INGEST_METRICS_H_
#define AGGREGATOR_INGEST_INGEST_METRICS_H_

#include <memory>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace fleetblame::aggregator {

struct IngestMetrics {
  explicit IngestMetrics(std::shared_ptr<prometheus::Registry> registry);

  std::shared_ptr<prometheus::Registry> registry;  // keeps the metrics below alive

  prometheus::Gauge& streams;  // open, registered or not
  prometheus::Gauge& hosts;    // registered
  prometheus::Gauge& inflight_bytes;
  prometheus::Gauge& streams_waiting;  // for inflight bytes
  prometheus::Gauge& store_writable;   // 1 or 0

  prometheus::Counter& streams_opened;
  prometheus::Counter& refused_admission;
  prometheus::Counter& refused_hello;
  prometheus::Counter& refused_certificate;
  prometheus::Counter& refused_duplicate_host;
  prometheus::Counter& refused_store;
  prometheus::Counter& takeovers;

  prometheus::Counter& wire_bytes;
  prometheus::Counter& rows;
  prometheus::Counter& definitions;
  prometheus::Counter& batches_durable;
  prometheus::Counter& batches_duplicate;
  prometheus::Counter& batches_out_of_order;
  prometheus::Counter& batches_discarded;  // sent before the agent knew of a Reject
  prometheus::Counter& needs;
  prometheus::Counter& rejects_retry;
  prometheus::Counter& rejects_split;
  prometheus::Counter& rejects_drop;
  prometheus::Counter& rejects_register;
  prometheus::Counter& malformed_messages;
  prometheus::Counter& skipped_batches;  // lost on the way for good, stored as gaps
  prometheus::Counter& trace_events;
  prometheus::Counter& skewed_hellos;

  prometheus::Histogram& commit_seconds;
  prometheus::Histogram& commit_batches;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_INGEST_METRICS_H_
