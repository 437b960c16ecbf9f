// SPDX-License-Identifier: Apache-2.0
#include "node-agent/trace/trace_mode.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"

namespace fleetblame::agent {
namespace {

constexpr absl::Duration kPollTimeout = absl::Milliseconds(100);
constexpr absl::Duration kDefaultDuration = absl::Minutes(1);

}  // namespace

TraceMode::TraceMode(Tracer* tracer, LocalNames* names, Dictionary* dictionary,
                     const TraceModeOptions& options)
    : tracer_(tracer), names_(names), dictionary_(dictionary), options_(options) {}

TraceMode::~TraceMode() { Stop(); }

absl::Status TraceMode::Apply(const v1::TraceDirective* directive, absl::Time now) {
  if (directive == nullptr) {
    Stop();
    return absl::OkStatus();
  }
  uint64_t current = 0;
  {
    absl::MutexLock lock(&mutex_);
    current = filter_.trace_id;
  }
  if ((on_ && current == directive->trace_id()) || directive->trace_id() == ended_trace_id_) {
    return absl::OkStatus();
  }
  Filter filter;
  filter.trace_id = directive->trace_id();
  filter.operations = {directive->operations().begin(), directive->operations().end()};
  filter.devices = {directive->devices().begin(), directive->devices().end()};
  filter.min_total_ns = directive->min_total_ns();
  filter.events_per_second = directive->max_events_per_second() == 0
                                 ? options_.default_events_per_second
                                 : directive->max_events_per_second();
  absl::Duration duration = kDefaultDuration;
  if (directive->max_duration_ns() > 0) {
    duration = absl::Nanoseconds(
        static_cast<int64_t>(std::min<uint64_t>(directive->max_duration_ns(), INT64_MAX)));
  }
  off_at_ = now + std::min(duration, options_.longest);
  {
    absl::MutexLock lock(&mutex_);
    filter_ = std::move(filter);
    raw_.clear();
    ripe_ = 0;
    events_.clear();
    dropped_ = 0;
    tokens_ = static_cast<double>(filter_.events_per_second);
    refilled_ = now;
  }
  if (on_) return absl::OkStatus();
  if (auto status = tracer_->SetTrace(true); !status.ok()) return status;
  on_ = true;
  polling_ = true;
  thread_ = std::thread([this] { Poll(); });
  LogInfo("trace mode is on", {{"trace_id", directive->trace_id()}, {"until", off_at_ - now}});
  return absl::OkStatus();
}

void TraceMode::Stop() {
  if (!on_) return;
  on_ = false;
  polling_ = false;
  if (thread_.joinable()) thread_.join();
  if (auto status = tracer_->SetTrace(false); !status.ok()) {
    LogWarning("trace mode cannot be switched off", {{"status", status}});
  }
  absl::MutexLock lock(&mutex_);
  raw_.clear();
  ripe_ = 0;
  LogInfo("trace mode is off", {{"trace_id", filter_.trace_id}});
}

void TraceMode::Poll() {
  while (polling_) {
    uint64_t dropped = 0;
    const absl::Status status = tracer_->PollTrace(
        kPollTimeout, [this](const TraceRecord& record) { OnRecord(record); }, &dropped);
    if (dropped > 0) {
      absl::MutexLock lock(&mutex_);
      Count(dropped);
    }
    if (!status.ok()) {
      LogWarning("trace records cannot be read", {{"status", status}});
      absl::SleepFor(kPollTimeout);
    }
  }
}

void TraceMode::Count(uint64_t dropped) {
  dropped_ += dropped;
  total_dropped_ += dropped;
}

bool TraceMode::Wanted(const TraceRecord& record) const {
  if (record.wait_ns + record.io_ns < filter_.min_total_ns) return false;
  return filter_.operations.empty() ||
         filter_.operations.contains(static_cast<uint32_t>(record.operation));
}

void TraceMode::OnRecord(const TraceRecord& record) {
  absl::MutexLock lock(&mutex_);
  // Under the lock: whoever sees the number finds the record too.
  ++total_seen_;
  if (!Wanted(record)) return;
  const absl::Time now = absl::Now();
  const auto rate = static_cast<double>(filter_.events_per_second);
  tokens_ = std::min(rate, tokens_ + rate * absl::ToDoubleSeconds(now - refilled_));
  refilled_ = now;
  if (tokens_ < 1 || raw_.size() >= options_.max_raw) {
    Count(1);
    return;
  }
  tokens_ -= 1;
  raw_.push_back(record);
}

v1::TraceEvent TraceMode::MakeEvent(const TraceRecord& record, int64_t realtime_offset_ns) {
  v1::TraceEvent event;
  event.set_time_unix_ns(record.complete_boot_ns + static_cast<uint64_t>(realtime_offset_ns));
  event.set_device(names_->DeviceName(record.device));
  event.set_sector(record.sector);
  event.set_bytes(record.bytes);
  event.set_operation(static_cast<v1::Operation>(record.operation));
  event.set_rwbs(record.rwbs);
  event.set_wait_ns(record.wait_ns);
  event.set_io_ns(record.io_ns);
  event.set_error(static_cast<uint32_t>(std::max(record.error, 0)));
  event.set_confidence(static_cast<v1::Confidence>(record.confidence));
  if (const v1::Actor* actor = names_->FindActor(record.issuer_actor)) {
    *event.mutable_issuer() = *actor;
  }
  if (const v1::Actor* actor = names_->FindActor(record.dirtier_actor)) {
    *event.mutable_dirtier() = *actor;
  }
  event.set_issuer_tid(record.issuer_tid);
  event.set_dirtier_tid(record.dirtier_tid);
  const uint64_t dictionary = dictionary_->current_id();
  const uint32_t issuer = names_->Intent(record.issuer_stack, record.reason);
  const uint32_t dirtier = names_->Intent(record.dirtier_stack, record.reason);
  if (auto intent = dictionary_->Intent(dictionary, issuer)) {
    event.set_issuer_intent_id(intent->intent_id());
  }
  if (auto intent = dictionary_->Intent(dictionary, dirtier)) {
    event.set_dirtier_intent_id(intent->intent_id());
    *event.mutable_dirtier_frames() = std::move(*intent->mutable_frames());
  }
  const std::string_view reason = names_->Reason(record.reason);
  event.set_modifier(reason.data(), reason.size());
  if (auto file = names_->FindFile(record.file)) *event.mutable_file() = *file;
  event.set_requeues(record.requeues);
  event.set_merged_bios(record.merged_bios);
  event.set_other_bytes(record.other_bytes);
  return event;
}

void TraceMode::BeforeCollect() {
  absl::MutexLock lock(&mutex_);
  ripe_ = raw_.size();
}

bool TraceMode::Resolve(absl::Time now, int64_t realtime_offset_ns) {
  std::deque<TraceRecord> raw;
  std::set<std::string> devices;
  {
    absl::MutexLock lock(&mutex_);
    const auto end = raw_.begin() + static_cast<std::ptrdiff_t>(std::min(ripe_, raw_.size()));
    raw.assign(raw_.begin(), end);
    raw_.erase(raw_.begin(), end);
    ripe_ = 0;
    devices = filter_.devices;
  }
  std::vector<v1::TraceEvent> events;
  for (const TraceRecord& record : raw) {
    if (!devices.empty() && !devices.contains(names_->DeviceName(record.device))) continue;
    events.push_back(MakeEvent(record, realtime_offset_ns));
  }
  bool any = false;
  uint64_t trace_id = 0;
  {
    absl::MutexLock lock(&mutex_);
    for (v1::TraceEvent& event : events) {
      if (events_.size() >= options_.max_events) {
        // Nobody takes them: the newest are worth more than the oldest.
        events_.pop_front();
        Count(1);
      }
      events_.push_back(std::move(event));
    }
    any = !events_.empty() || dropped_ > 0;
    trace_id = filter_.trace_id;
  }
  if (on_ && now >= off_at_) {
    ended_trace_id_ = trace_id;
    Stop();
  }
  return any;
}

std::optional<v1::TraceEvents> TraceMode::TakeEvents() {
  absl::MutexLock lock(&mutex_);
  if (events_.empty() && dropped_ == 0) return std::nullopt;
  v1::TraceEvents out;
  out.set_trace_id(filter_.trace_id);
  out.set_dropped(std::exchange(dropped_, 0));
  while (!events_.empty() &&
         static_cast<size_t>(out.events_size()) < options_.max_events_per_message) {
    *out.add_events() = std::move(events_.front());
    events_.pop_front();
  }
  return out;
}

}  // namespace fleetblame::agent
