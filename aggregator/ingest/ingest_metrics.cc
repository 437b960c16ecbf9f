// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/ingest_metrics.h"

#include <map>
#include <string>
#include <utility>

namespace fleetblame::aggregator {
namespace {

using Labels = std::map<std::string, std::string>;

prometheus::Counter& NewCounter(prometheus::Registry& registry, const std::string& name,
                                const std::string& help, const Labels& labels = {}) {
  return prometheus::BuildCounter()
      .Name("fleetblame_aggregator_" + name)
      .Help(help)
      .Register(registry)
      .Add(labels);
}

prometheus::Gauge& NewGauge(prometheus::Registry& registry, const std::string& name,
                            const std::string& help) {
  return prometheus::BuildGauge()
      .Name("fleetblame_aggregator_" + name)
      .Help(help)
      .Register(registry)
      .Add({});
}

prometheus::Histogram& NewHistogram(prometheus::Registry& registry, const std::string& name,
                                    const std::string& help,
                                    prometheus::Histogram::BucketBoundaries bounds) {
  return prometheus::BuildHistogram()
      .Name("fleetblame_aggregator_" + name)
      .Help(help)
      .Register(registry)
      .Add(Labels{}, std::move(bounds));
}

constexpr char kRefused[] = "Streams that were not let in.";
constexpr char kBatches[] = "Batches by what became of them.";
constexpr char kRejects[] = "Batches that were refused, by what the agent was told to do.";

}  // namespace

IngestMetrics::IngestMetrics(std::shared_ptr<prometheus::Registry> r)
    : registry(std::move(r)),
      streams(NewGauge(*registry, "streams", "Open streams.")),
      hosts(NewGauge(*registry, "connected_hosts", "Hosts that stream now.")),
      inflight_bytes(NewGauge(*registry, "inflight_bytes", "Memory between socket and disk.")),
      streams_waiting(NewGauge(*registry, "streams_waiting", "Streams that wait for memory.")),
      store_writable(NewGauge(*registry, "store_writable", "0 while the store refuses writes.")),
      streams_opened(NewCounter(*registry, "streams_opened_total", "Streams that began.")),
      refused_admission(
          NewCounter(*registry, "streams_refused_total", kRefused, {{"reason", "admission"}})),
      refused_hello(
          NewCounter(*registry, "streams_refused_total", kRefused, {{"reason", "hello"}})),
      refused_certificate(
          NewCounter(*registry, "streams_refused_total", kRefused, {{"reason", "certificate"}})),
      refused_duplicate_host(
          NewCounter(*registry, "streams_refused_total", kRefused, {{"reason", "duplicate_host"}})),
      refused_store(
          NewCounter(*registry, "streams_refused_total", kRefused, {{"reason", "store"}})),
      takeovers(NewCounter(*registry, "stream_takeovers_total",
                           "Streams that replaced an older one of the same agent.")),
      wire_bytes(NewCounter(*registry, "received_bytes_total", "Bytes of messages from agents.")),
      rows(NewCounter(*registry, "rows_total", "Rows that became durable.")),
      definitions(NewCounter(*registry, "definitions_total", "Definitions received.")),
      batches_durable(NewCounter(*registry, "batches_total", kBatches, {{"outcome", "durable"}})),
      batches_duplicate(
          NewCounter(*registry, "batches_total", kBatches, {{"outcome", "duplicate"}})),
      batches_out_of_order(
          NewCounter(*registry, "batches_total", kBatches, {{"outcome", "out_of_order"}})),
      batches_discarded(
          NewCounter(*registry, "batches_total", kBatches, {{"outcome", "discarded"}})),
      needs(NewCounter(*registry, "needs_total", "Requests for definitions.")),
      rejects_retry(NewCounter(*registry, "rejects_total", kRejects, {{"action", "retry"}})),
      rejects_split(NewCounter(*registry, "rejects_total", kRejects, {{"action", "split"}})),
      rejects_drop(NewCounter(*registry, "rejects_total", kRejects, {{"action", "drop"}})),
      rejects_register(NewCounter(*registry, "rejects_total", kRejects, {{"action", "register"}})),
      malformed_messages(
          NewCounter(*registry, "malformed_messages_total", "Messages that did not parse.")),
      skipped_batches(NewCounter(*registry, "skipped_batches_total",
                                 "Batches that agents no longer had; stored as gaps.")),
      trace_events(NewCounter(*registry, "trace_events_total", "Live events received.")),
      skewed_hellos(NewCounter(*registry, "skewed_hellos_total",
                               "Registrations of hosts whose clock differs by 10 s or more.")),
      commit_seconds(NewHistogram(*registry, "commit_seconds", "Time of one durable write.",
                                  {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5})),
      commit_batches(NewHistogram(*registry, "commit_batches", "Batches in one durable write.",
                                  {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000})) {
  store_writable.Set(1);
}

}  // namespace fleetblame::aggregator
