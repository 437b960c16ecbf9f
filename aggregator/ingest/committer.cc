// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/committer.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "common/log.h"

namespace fleetblame::aggregator {
namespace {

// Tasks get as much time as the last write took, within these bounds.
constexpr absl::Duration kLeastTaskSlice = absl::Milliseconds(20);
constexpr absl::Duration kMostTaskSlice = absl::Milliseconds(300);
constexpr absl::Duration kErrorLogInterval = absl::Minutes(1);

// Entries of a group by client, clients in order of first appearance.
template <typename Item>
class ByClient {
 public:
  std::vector<Item>& Of(const std::shared_ptr<CommitClient>& client) {
    auto [at, inserted] = index_.try_emplace(client.get(), clients_.size());
    if (inserted) clients_.emplace_back(client, std::vector<Item>());
    return clients_[at->second].second;
  }
  std::vector<std::pair<std::shared_ptr<CommitClient>, std::vector<Item>>>& clients() {
    return clients_;
  }

 private:
  absl::flat_hash_map<CommitClient*, size_t> index_;
  std::vector<std::pair<std::shared_ptr<CommitClient>, std::vector<Item>>> clients_;
};

}  // namespace

Committer::Committer(Store* store, IngestMetrics* metrics, const Options& options,
                     std::function<void(bool)> on_health)
    : store_(store), metrics_(metrics), options_(options), on_health_(std::move(on_health)) {
  thread_ = std::thread([this] { Loop(); });
}

Committer::~Committer() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void Committer::Submit(std::shared_ptr<CommitClient> client, HostNumber host,
                       DecodedBatchPtr batch) {
  absl::MutexLock lock(&mu_);
  queued_bytes_ += batch->lease.bytes();
  queue_.push_back({std::move(client), host, std::move(batch)});
}

void Committer::Run(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
}

bool Committer::healthy() const {
  absl::MutexLock lock(&mu_);
  return healthy_;
}

void Committer::Loop() {
  pthread_setname_np(pthread_self(), "commit");
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &Committer::HasWork));
      if (stopping_ && tasks_.empty() && queue_.empty()) return;
    }
    RunTasks();
    std::vector<Entry> group;
    {
      absl::MutexLock lock(&mu_);
      if (queue_.empty()) continue;
      if (!GroupIsFull()) {
        mu_.AwaitWithTimeout(absl::Condition(this, &Committer::GroupIsFull), options_.linger);
      }
      group = TakeGroup();
    }
    Commit(std::move(group));
  }
}

std::vector<Committer::Entry> Committer::TakeGroup() {
  std::vector<Entry> group;
  size_t bytes = 0;
  while (!queue_.empty() && bytes < options_.group_bytes && group.size() < options_.group_batches) {
    bytes += queue_.front().batch->lease.bytes();
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_bytes_ = queue_.empty() ? 0 : queued_bytes_ - std::min(bytes, queued_bytes_);
  return group;
}

void Committer::RunTasks() {
  absl::Time end = absl::Now() + std::clamp(last_commit_, kLeastTaskSlice, kMostTaskSlice);
  do {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  } while (absl::Now() < end);
}

void Committer::Commit(std::vector<Entry> group) {
  std::vector<IncomingBatch> incoming;
  incoming.reserve(group.size());
  for (const Entry& entry : group) {
    incoming.push_back({entry.host, &entry.batch->batch, &entry.batch->rows});
  }
  absl::Time begin = absl::Now();
  absl::StatusOr<std::vector<AppendResult>> results = store_->Append(incoming);
  last_commit_ = absl::Now() - begin;
  metrics_->commit_seconds.Observe(absl::ToDoubleSeconds(last_commit_));
  metrics_->commit_batches.Observe(static_cast<double>(group.size()));
  if (results.ok() && results->size() != group.size()) {
    results = absl::InternalError("the store returned another number of results than batches");
  }
  SetHealth(results.ok(), results.status());
  if (results.ok()) {
    Succeeded(std::move(group), *std::move(results));
  } else {
    Failed(std::move(group), results.status());
  }
}

void Committer::Succeeded(std::vector<Entry> group, std::vector<AppendResult> results) {
  uint64_t rows = 0, durable = 0, duplicate = 0, out_of_order = 0;
  ByClient<CommitClient::Outcome> by_client;
  for (size_t i = 0; i < group.size(); ++i) {
    switch (results[i].outcome) {
      case AppendResult::Outcome::kDurable:
        ++durable;
        rows += group[i].batch->batch.row_count();
        break;
      case AppendResult::Outcome::kDuplicate:
        ++duplicate;
        break;
      case AppendResult::Outcome::kOutOfOrder:
        ++out_of_order;
        break;
      case AppendResult::Outcome::kNeedDefinitions:
      case AppendResult::Outcome::kInvalid:
        break;
    }
    by_client.Of(group[i].client).push_back({std::move(group[i].batch), std::move(results[i])});
  }
  metrics_->rows.Increment(static_cast<double>(rows));
  metrics_->batches_durable.Increment(static_cast<double>(durable));
  metrics_->batches_duplicate.Increment(static_cast<double>(duplicate));
  metrics_->batches_out_of_order.Increment(static_cast<double>(out_of_order));
  for (auto& [client, outcomes] : by_client.clients()) client->OnCommitted(std::move(outcomes));
}

void Committer::Failed(std::vector<Entry> group, const absl::Status& error) {
  ByClient<DecodedBatchPtr> by_client;
  for (Entry& entry : group) by_client.Of(entry.client).push_back(std::move(entry.batch));
  for (auto& [client, batches] : by_client.clients()) {
    client->OnCommitFailed(std::move(batches), error);
  }
}

void Committer::SetHealth(bool healthy, const absl::Status& error) {
  bool changed = false;
  {
    absl::MutexLock lock(&mu_);
    changed = healthy_ != healthy;
    healthy_ = healthy;
  }
  if (!healthy && absl::Now() - last_error_log_ >= kErrorLogInterval) {
    last_error_log_ = absl::Now();
    failure_logged_ = true;
    LogError("the store cannot write; agents keep their data and are told to retry",
             {{"error", error}});
  }
  if (!changed) return;
  metrics_->store_writable.Set(healthy ? 1 : 0);
  if (healthy && failure_logged_) LogInfo("the store writes again");
  if (healthy) failure_logged_ = false;
  if (on_health_) on_health_(healthy);
}

}  // namespace fleetblame::aggregator
