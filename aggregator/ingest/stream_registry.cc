// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/stream_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

// An agent whose network flaps takes over from itself now and then; more often than this within
// the interval there are two of them.
constexpr int kMaxTakeovers = 5;
constexpr absl::Duration kTakeoverInterval = absl::Minutes(1);

}  // namespace

bool StreamRegistry::Add(const std::shared_ptr<LiveStream>& stream) {
  absl::MutexLock lock(&mu_);
  if (closed_ || streams_.size() >= max_streams_) return false;
  streams_.emplace(stream.get(), stream);
  metrics_->streams.Set(static_cast<double>(streams_.size()));
  return true;
}

void StreamRegistry::Remove(LiveStream* stream) {
  std::shared_ptr<LiveStream> last_reference;
  absl::MutexLock lock(&mu_);
  auto at = streams_.find(stream);
  if (at == streams_.end()) return;
  last_reference = std::move(at->second);
  streams_.erase(at);
  metrics_->streams.Set(static_cast<double>(streams_.size()));
}

absl::Status StreamRegistry::Claim(const std::string& host_id, uint64_t spool_epoch,
                                   const std::shared_ptr<LiveStream>& stream, absl::Time now) {
  std::shared_ptr<LiveStream> superseded;
  {
    absl::MutexLock lock(&mu_);
    Claimed& claimed = by_host_[host_id];
    if (claimed.stream == stream) return absl::OkStatus();
    if (claimed.stream != nullptr && claimed.spool_epoch != spool_epoch) {
      return absl::AlreadyExistsError(
          absl::StrCat("another agent streams as host ", host_id,
                       "; give each its own host id, or wait a minute if this one replaces it"));
    }
    if (claimed.stream != nullptr) {
      if (now - claimed.takeovers_since > kTakeoverInterval) {
        claimed.takeovers_since = now;
        claimed.takeovers = 0;
      }
      if (++claimed.takeovers > kMaxTakeovers) {
        return absl::AlreadyExistsError(
            absl::StrCat("two agents with the same spool stream as host ", host_id,
                         "; remove the copied spool directory and machine id from one of them"));
      }
      superseded = std::move(claimed.stream);
      claimed.host = nullptr;
    } else {
      hub_->HostConnected(host_id);
    }
    claimed.spool_epoch = spool_epoch;
    claimed.stream = stream;
    metrics_->hosts.Set(static_cast<double>(by_host_.size()));
  }
  if (superseded != nullptr) {
    metrics_->takeovers.Increment();
    superseded->Supersede();
  }
  return absl::OkStatus();
}

void StreamRegistry::SetHost(std::shared_ptr<const HostRecord> host, LiveStream* stream) {
  absl::MutexLock lock(&mu_);
  auto at = by_host_.find(host->host_id);
  if (at != by_host_.end() && at->second.stream.get() == stream) at->second.host = std::move(host);
}

void StreamRegistry::Release(const std::string& host_id, LiveStream* stream) {
  std::shared_ptr<LiveStream> last_reference;
  absl::MutexLock lock(&mu_);
  auto at = by_host_.find(host_id);
  if (at == by_host_.end() || at->second.stream.get() != stream) return;
  last_reference = std::move(at->second.stream);
  by_host_.erase(at);
  hub_->HostDisconnected(host_id);
  metrics_->hosts.Set(static_cast<double>(by_host_.size()));
}

std::vector<std::shared_ptr<LiveStream>> StreamRegistry::All() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<LiveStream>> all;
  all.reserve(streams_.size());
  for (const auto& [raw, stream] : streams_) all.push_back(stream);
  return all;
}

std::vector<std::shared_ptr<LiveStream>> StreamRegistry::OfHosts(
    const std::vector<std::string>& host_ids) const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<LiveStream>> found;
  for (const std::string& host_id : host_ids) {
    auto at = by_host_.find(host_id);
    if (at != by_host_.end() && at->second.stream != nullptr) found.push_back(at->second.stream);
  }
  return found;
}

std::vector<std::shared_ptr<const HostRecord>> StreamRegistry::Hosts() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<const HostRecord>> hosts;
  for (const auto& [host_id, claimed] : by_host_) {
    if (claimed.host != nullptr) hosts.push_back(claimed.host);
  }
  return hosts;
}

void StreamRegistry::ShutDown() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  for (const auto& stream : All()) stream->ShutDown();
}

bool StreamRegistry::AwaitEmpty(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return streams_.empty(); };
  return mu_.AwaitWithTimeout(absl::Condition(&empty), timeout);
}

}  // namespace fleetblame::aggregator
