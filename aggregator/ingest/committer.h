// SPDX-License-Identifier: Apache-2.0
//
// The one thread that writes to the store. It takes whatever batches have arrived while the last
// write was under way, from any number of hosts, and makes them durable with one fsync; that is why
// 10,000 agents do not cost 10,000 fsyncs.
//
// Registrations (in groups, see registrar.h) and the like are tasks: they run between two writes,
// for about as long as a write takes, so that ten thousand agents that come back at once do not
// hold up those that send.
//
// Threading: Submit and Run from any thread. Clients are called on the committer's thread, without
// a lock held. What is queued is bounded by those who queue (ByteBudget, one task a stream).
#ifndef AGGREGATOR_INGEST_COMMITTER_H_
#define AGGREGATOR_INGEST_COMMITTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "aggregator/ingest/batch_pool.h"
#include "aggregator/ingest/ingest_metrics.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

// Somebody who hands batches in.
class CommitClient {
 public:
  virtual ~CommitClient() = default;
  struct Outcome {
    DecodedBatchPtr batch;
    AppendResult result;
  };
  // Those of one write, in the order in which they were submitted.
  virtual void OnCommitted(std::vector<Outcome> outcomes) = 0;
  // The store could not write; nothing of these is durable.
  virtual void OnCommitFailed(std::vector<DecodedBatchPtr> batches, const absl::Status& error) = 0;
};

class Committer {
 public:
  struct Options {
    // How long the first batch may wait for company.
    absl::Duration linger = absl::Milliseconds(2);
    // A write is not delayed once it holds this many, and holds no more than a little beyond it.
    size_t group_bytes = 4 << 20;
    size_t group_batches = 2048;
  };

  // `store` and `metrics` must outlive it. `on_health` is called, on the committer's thread, with
  // false when the store begins to fail and with true when it has recovered.
  Committer(Store* store, IngestMetrics* metrics, const Options& options,
            std::function<void(bool healthy)> on_health);
  // Writes what is queued, then ends.
  ~Committer();

  void Submit(std::shared_ptr<CommitClient> client, HostNumber host, DecodedBatchPtr batch);
  void Run(std::function<void()> task);

  // Whether the last write succeeded.
  bool healthy() const;

 private:
  struct Entry {
    std::shared_ptr<CommitClient> client;
    HostNumber host;
    DecodedBatchPtr batch;
  };

  void Loop();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !tasks_.empty() || !queue_.empty();
  }
  bool GroupIsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || queued_bytes_ >= options_.group_bytes ||
           queue_.size() >= options_.group_batches;
  }
  std::vector<Entry> TakeGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunTasks();
  void Commit(std::vector<Entry> group);
  void Succeeded(std::vector<Entry> group, std::vector<AppendResult> results);
  void Failed(std::vector<Entry> group, const absl::Status& error);
  void SetHealth(bool healthy, const absl::Status& error);

  Store* const store_;
  IngestMetrics* const metrics_;
  const Options options_;
  const std::function<void(bool)> on_health_;

  mutable absl::Mutex mu_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mu_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool healthy_ ABSL_GUARDED_BY(mu_) = true;

  // Committer's thread only.
  absl::Duration last_commit_ = absl::ZeroDuration();
  absl::Time last_error_log_ = absl::InfinitePast();
  bool failure_logged_ = false;

  std::thread thread_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_COMMITTER_H_
