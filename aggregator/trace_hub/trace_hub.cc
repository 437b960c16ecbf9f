// SPDX-License-Identifier: Apache-2.0
#include "aggregator/trace_hub/trace_hub.h"

#include <fnmatch.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fleetblame::aggregator {
namespace {

bool DevicePasses(const std::string& device, const v1::TraceDirective& want) {
  if (want.devices().empty()) return true;
  bool only_exclusions = true;
  bool included = false;
  for (const std::string& pattern : want.devices()) {
    bool negated = !pattern.empty() && pattern[0] == '!';
    const char* glob = pattern.c_str() + (negated ? 1 : 0);
    // Events name devices; only the agent can tell which one has MAJ:MIN, and it did.
    bool matches = (!negated && pattern.find(':') != std::string::npos) ||
                   fnmatch(glob, device.c_str(), 0) == 0;
    if (negated && matches) return false;
    if (!negated) {
      only_exclusions = false;
      included = included || matches;
    }
  }
  return included || only_exclusions;
}

bool Passes(const v1::TraceEvent& event, const v1::TraceDirective& want) {
  if (event.wait_ns() + event.io_ns() < want.min_total_ns()) return false;
  const auto& operations = want.operations();
  if (!operations.empty() &&
      std::find(operations.begin(), operations.end(), static_cast<uint32_t>(event.operation())) ==
          operations.end()) {
    return false;
  }
  return DevicePasses(event.device(), want);
}

// What one subscription may receive of one host in the current second.
struct RateWindow {
  absl::Time start = absl::InfinitePast();
  uint64_t events = 0;
};

// The part of a subscription that publishers share with it.
class Inbox {
 public:
  Inbox(v1::TraceDirective want, size_t queue_bytes, absl::Time ends,
        std::function<void()> on_ready)
      : want_(std::move(want)),
        queue_bytes_(queue_bytes),
        ends_(ends),
        on_ready_(std::move(on_ready)) {}

  const v1::TraceDirective& want() const { return want_; }
  absl::Time ends() const { return ends_; }

  // Returns how many events that were wanted had to be dropped.
  uint64_t Push(const std::string& host_id, const v1::TraceEvents& events, absl::Time now) {
    uint64_t dropped_here = 0;
    bool wake = false;
    {
      absl::MutexLock lock(&mu_);
      bool was_empty = queue_.empty() && losses_.empty();
      TraceChunk chunk;
      chunk.host_id = host_id;
      size_t chunk_bytes = sizeof(TraceChunk);
      RateWindow& rate = rates_[host_id];
      if (now - rate.start >= absl::Seconds(1)) rate = {now, 0};
      for (const v1::TraceEvent& event : events.events()) {
        if (!Passes(event, want_)) continue;
        size_t event_bytes = event.SpaceUsedLong();
        bool over_rate =
            want_.max_events_per_second() != 0 && rate.events >= want_.max_events_per_second();
        if (over_rate || used_bytes_ + chunk_bytes + event_bytes > queue_bytes_) {
          ++dropped_here;
          continue;
        }
        ++rate.events;
        chunk_bytes += event_bytes;
        chunk.events.push_back(event);
      }
      uint64_t lost = dropped_here + events.dropped();
      if (lost != 0) losses_[host_id] += lost;
      if (!chunk.events.empty()) {
        chunk.dropped = std::exchange(losses_[host_id], 0);
        losses_.erase(host_id);
        used_bytes_ += chunk_bytes;
        queue_.emplace_back(std::move(chunk), chunk_bytes);
      }
      wake = was_empty && !(queue_.empty() && losses_.empty());
    }
    if (wake) Wake();
    return dropped_here;
  }

  std::optional<TraceChunk> Take() {
    absl::MutexLock lock(&mu_);
    if (!queue_.empty()) {
      TraceChunk chunk = std::move(queue_.front().first);
      used_bytes_ -= queue_.front().second;
      queue_.pop_front();
      return chunk;
    }
    if (losses_.empty()) return std::nullopt;
    TraceChunk chunk;
    chunk.host_id = losses_.begin()->first;
    chunk.dropped = losses_.begin()->second;
    losses_.erase(losses_.begin());
    return chunk;
  }

  // After this `on_ready` is not running and does not run again.
  void Close() {
    absl::MutexLock lock(&ready_mu_);
    on_ready_ = nullptr;
  }

 private:
  void Wake() {
    absl::MutexLock lock(&ready_mu_);
    if (on_ready_) on_ready_();
  }

  const v1::TraceDirective want_;
  const size_t queue_bytes_;
  const absl::Time ends_;

  absl::Mutex mu_;
  std::deque<std::pair<TraceChunk, size_t>> queue_;
  size_t used_bytes_ = 0;
  std::map<std::string, uint64_t> losses_;  // not yet told, by host
  std::map<std::string, RateWindow> rates_;

  // Not held together with mu_, so that on_ready may call Take.
  absl::Mutex ready_mu_;
  std::function<void()> on_ready_;
};

// The union of what several people want of one host.
v1::TraceDirective Union(const std::vector<std::shared_ptr<Inbox>>& inboxes) {
  v1::TraceDirective all;
  std::set<uint32_t> operations;
  std::set<std::string> devices;
  bool any_operation = false, any_device = false, default_rate = false;
  uint64_t rate = 0, min_total_ns = UINT64_MAX;
  for (const auto& inbox : inboxes) {
    const v1::TraceDirective& want = inbox->want();
    operations.insert(want.operations().begin(), want.operations().end());
    devices.insert(want.devices().begin(), want.devices().end());
    any_operation |= want.operations().empty();
    any_device |= want.devices().empty();
    default_rate |= want.max_events_per_second() == 0;
    rate = std::max(rate, want.max_events_per_second());
    min_total_ns = std::min(min_total_ns, want.min_total_ns());
  }
  // With a negated pattern the union is no longer the set of all patterns.
  bool negated = std::any_of(devices.begin(), devices.end(),
                             [](const std::string& d) { return !d.empty() && d[0] == '!'; });
  if (!any_operation) all.mutable_operations()->Add(operations.begin(), operations.end());
  if (!any_device && !(negated && inboxes.size() > 1)) {
    for (const std::string& device : devices) all.add_devices(device);
  }
  all.set_max_events_per_second(default_rate ? 0 : rate);
  all.set_min_total_ns(min_total_ns);
  return all;
}

struct WatchedHost {
  std::vector<std::shared_ptr<Inbox>> inboxes;
  v1::TraceDirective directive;  // without max_duration_ns
  absl::Time ends;
  uint64_t previous_trace_id = 0;  // its events may still be under way
};

// Shared by hub and subscriptions, so that either may go first.
class Core {
 public:
  explicit Core(const TraceHub::Limits& limits) : limits_(limits) {
    std::random_device random;
    next_trace_id_ = (uint64_t{random()} << 31 | random()) | 1;
  }

  absl::Status Add(const std::vector<std::string>& host_ids, const std::shared_ptr<Inbox>& inbox) {
    std::vector<std::string> changed;
    {
      absl::MutexLock lock(&mu_);
      if (subscriptions_ >= limits_.max_subscriptions) {
        return absl::ResourceExhaustedError(
            absl::StrCat("there are already ", subscriptions_,
                         " live traces, which is the limit; wait until one ends"));
      }
      ++subscriptions_;
      for (const std::string& host_id : host_ids) {
        WatchedHost& host = watched_[host_id];
        host.inboxes.push_back(inbox);
        if (Recompute(host)) changed.push_back(host_id);
      }
    }
    Notify(changed);
    return absl::OkStatus();
  }

  void Remove(const std::vector<std::string>& host_ids, const std::shared_ptr<Inbox>& inbox) {
    std::vector<std::string> changed;
    {
      absl::MutexLock lock(&mu_);
      --subscriptions_;
      for (const std::string& host_id : host_ids) {
        auto at = watched_.find(host_id);
        if (at == watched_.end()) continue;
        std::erase(at->second.inboxes, inbox);
        if (at->second.inboxes.empty()) {
          watched_.erase(at);
          changed.push_back(host_id);
        } else if (Recompute(at->second)) {
          changed.push_back(host_id);
        }
      }
    }
    Notify(changed);
  }

  void Publish(std::string_view host_id, const v1::TraceEvents& events) {
    std::vector<std::shared_ptr<Inbox>> inboxes;
    {
      absl::MutexLock lock(&mu_);
      auto at = watched_.find(std::string(host_id));
      if (at == watched_.end() || (events.trace_id() != at->second.directive.trace_id() &&
                                   events.trace_id() != at->second.previous_trace_id)) {
        stats_.stale_events += events.events_size();
        return;
      }
      stats_.events += events.events_size();
      inboxes = at->second.inboxes;
    }
    uint64_t dropped = 0;
    absl::Time now = absl::Now();
    for (const auto& inbox : inboxes) dropped += inbox->Push(std::string(host_id), events, now);
    absl::MutexLock lock(&mu_);
    stats_.dropped_events += dropped;
  }

  std::optional<v1::TraceDirective> DirectiveFor(std::string_view host_id) const {
    absl::MutexLock lock(&mu_);
    auto at = watched_.find(std::string(host_id));
    if (at == watched_.end()) return std::nullopt;
    absl::Duration left = at->second.ends - absl::Now();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    v1::TraceDirective directive = at->second.directive;
    directive.set_max_duration_ns(absl::ToInt64Nanoseconds(left));
    return directive;
  }

  void SetListener(std::function<void(const std::vector<std::string>&)> listener) {
    absl::MutexLock lock(&listener_mu_);
    listener_ = std::move(listener);
  }

  void HostConnected(std::string_view host_id) {
    absl::MutexLock lock(&mu_);
    connected_.insert(std::string(host_id));
  }
  void HostDisconnected(std::string_view host_id) {
    absl::MutexLock lock(&mu_);
    connected_.erase(std::string(host_id));
  }
  std::set<std::string> Connected() const {
    absl::MutexLock lock(&mu_);
    return connected_;
  }
  bool IsConnected(std::string_view host_id) const {
    absl::MutexLock lock(&mu_);
    return connected_.count(std::string(host_id)) != 0;
  }

  TraceHub::Stats stats() const {
    absl::MutexLock lock(&mu_);
    TraceHub::Stats stats = stats_;
    stats.subscriptions = subscriptions_;
    return stats;
  }

  const TraceHub::Limits& limits() const { return limits_; }

 private:
  // Whether the agent must be told something new.
  bool Recompute(WatchedHost& host) {
    v1::TraceDirective fresh = Union(host.inboxes);
    absl::Time ends = absl::InfinitePast();
    for (const auto& inbox : host.inboxes) ends = std::max(ends, inbox->ends());
    fresh.set_trace_id(host.directive.trace_id());
    bool same = fresh.trace_id() != 0 && ends <= host.ends &&
                fresh.SerializeAsString() == host.directive.SerializeAsString();
    // A shorter trace needs no message: when the last one leaves, the agent is told anyway.
    if (same) return false;
    host.previous_trace_id = host.directive.trace_id();
    fresh.set_trace_id(next_trace_id_++);
    host.directive = std::move(fresh);
    host.ends = ends;
    return true;
  }

  void Notify(const std::vector<std::string>& host_ids) {
    if (host_ids.empty()) return;
    absl::MutexLock lock(&listener_mu_);
    if (listener_) listener_(host_ids);
  }

  const TraceHub::Limits limits_;

  mutable absl::Mutex mu_;
  uint64_t next_trace_id_;
  size_t subscriptions_ = 0;
  std::map<std::string, WatchedHost> watched_;
  std::set<std::string> connected_;
  TraceHub::Stats stats_;

  // Serializes the listener, so that what it reads last is what holds.
  absl::Mutex listener_mu_;
  std::function<void(const std::vector<std::string>&)> listener_;
};

class Subscription : public TraceSubscription {
 public:
  Subscription(std::shared_ptr<Core> core, std::vector<std::string> host_ids,
               std::shared_ptr<Inbox> inbox)
      : core_(std::move(core)), host_ids_(std::move(host_ids)), inbox_(std::move(inbox)) {}
  ~Subscription() override {
    inbox_->Close();
    core_->Remove(host_ids_, inbox_);
  }
  std::optional<TraceChunk> Take() override { return inbox_->Take(); }

 private:
  const std::shared_ptr<Core> core_;
  const std::vector<std::string> host_ids_;
  const std::shared_ptr<Inbox> inbox_;
};

class Hub : public TraceHub {
 public:
  explicit Hub(const Limits& limits) : core_(std::make_shared<Core>(limits)) {}

  absl::StatusOr<std::unique_ptr<TraceSubscription>> Subscribe(
      const std::vector<std::string>& host_ids, const v1::TraceDirective& want,
      std::function<void()> on_ready) override {
    if (host_ids.empty()) return absl::InvalidArgumentError("a trace needs at least one host");
    if (want.max_duration_ns() == 0) {
      return absl::InvalidArgumentError("a trace needs a duration");
    }
    std::set<std::string> distinct(host_ids.begin(), host_ids.end());
    std::vector<std::string> hosts(distinct.begin(), distinct.end());
    int64_t duration_ns =
        static_cast<int64_t>(std::min<uint64_t>(want.max_duration_ns(), INT64_MAX / 2));
    auto inbox =
        std::make_shared<Inbox>(want, core_->limits().queue_bytes,
                                absl::Now() + absl::Nanoseconds(duration_ns), std::move(on_ready));
    absl::Status added = core_->Add(hosts, inbox);
    if (!added.ok()) return added;
    return std::make_unique<Subscription>(core_, std::move(hosts), std::move(inbox));
  }

  std::set<std::string> ConnectedHosts() const override { return core_->Connected(); }
  bool IsConnected(std::string_view host_id) const override { return core_->IsConnected(host_id); }
  void HostConnected(std::string_view host_id) override { core_->HostConnected(host_id); }
  void HostDisconnected(std::string_view host_id) override { core_->HostDisconnected(host_id); }
  void Publish(std::string_view host_id, v1::TraceEvents events) override {
    core_->Publish(host_id, events);
  }
  std::optional<v1::TraceDirective> DirectiveFor(std::string_view host_id) const override {
    return core_->DirectiveFor(host_id);
  }
  void SetListener(std::function<void(const std::vector<std::string>&)> listener) override {
    core_->SetListener(std::move(listener));
  }
  Stats stats() const override { return core_->stats(); }

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace

std::unique_ptr<TraceHub> TraceHub::Create(const Limits& limits) {
  return std::make_unique<Hub>(limits);
}

}  // namespace fleetblame::aggregator
