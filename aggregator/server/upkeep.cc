// SPDX-License-Identifier: Apache-2.0
#include "aggregator/server/upkeep.h"

#include <pthread.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/log.h"

namespace fleetblame::aggregator {
namespace {

constexpr absl::Duration kErrorLogInterval = absl::Minutes(1);

prometheus::Counter& NewCounter(prometheus::Registry& registry, const std::string& name,
                                const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

// A metric's name may hold letters, digits and underscores.
std::string MetricName(const std::string& name) {
  std::string clean = "fleetblame_aggregator_";
  for (unsigned char c : name) {
    clean += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? static_cast<char>(c) : '_';
  }
  return clean;
}

}  // namespace

Upkeep::Upkeep(Store* store, TraceHub* hub, std::shared_ptr<prometheus::Registry> registry,
               const Options& options)
    : store_(store),
      hub_(hub),
      registry_(std::move(registry)),
      options_(options),
      errors_(NewCounter(*registry_, "fleetblame_aggregator_upkeep_errors_total",
                         "Steps of upkeep that failed.")),
      seconds_(NewCounter(*registry_, "fleetblame_aggregator_upkeep_seconds_total",
                          "Time spent on rollups and retention.")) {
  thread_ = std::thread([this] { Loop(); });
}

Upkeep::~Upkeep() {
  stop_.Notify();
  thread_.join();
}

void Upkeep::Loop() {
  pthread_setname_np(pthread_self(), "upkeep");
  absl::Duration pause = options_.interval;
  while (!stop_.WaitForNotificationWithTimeout(pause)) {
    // With work left it goes on, but leaves half of the time to others.
    pause = Step() ? options_.budget : options_.interval;
    CopyGauges();
  }
}

bool Upkeep::Step() {
  absl::Time begin = absl::Now();
  absl::Status status = store_->Upkeep(static_cast<uint64_t>(absl::ToUnixNanos(begin)),
                                       absl::ToInt64Nanoseconds(options_.budget));
  absl::Duration took = absl::Now() - begin;
  seconds_.Increment(absl::ToDoubleSeconds(took));
  if (status.ok()) return took >= options_.budget;
  errors_.Increment();
  if (absl::Now() - last_error_log_ >= kErrorLogInterval) {
    last_error_log_ = absl::Now();
    LogError("upkeep of the store failed; it is tried again", {{"error", status}});
  }
  return false;
}

void Upkeep::CopyGauges() {
  std::map<std::string, double> values;
  for (const auto& [name, value] : store_->Gauges()) values["store_" + name] = value;
  TraceHub::Stats stats = hub_->stats();
  values["trace_subscriptions"] = static_cast<double>(stats.subscriptions);
  values["trace_published_events"] = static_cast<double>(stats.events);
  values["trace_dropped_events"] = static_cast<double>(stats.dropped_events);
  values["trace_stale_events"] = static_cast<double>(stats.stale_events);
  for (const auto& [name, value] : values) {
    prometheus::Gauge*& gauge = gauges_[name];
    if (gauge == nullptr) {
      gauge = &prometheus::BuildGauge()
                   .Name(MetricName(name))
                   .Help("See docs/aggregator.md.")
                   .Register(*registry_)
                   .Add({});
    }
    gauge->Set(value);
  }
}

}  // namespace fleetblame::aggregator
