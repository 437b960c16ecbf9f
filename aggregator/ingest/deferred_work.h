// SPDX-License-Identifier: Apache-2.0
//
// A thread for work that must not be done where it came up: a batch that waited for memory is
// decoded here, not on the thread that happened to free the memory.
//
// Threading: Run from any thread; work runs in order on one thread.
#ifndef AGGREGATOR_INGEST_DEFERRED_WORK_H_
#define AGGREGATOR_INGEST_DEFERRED_WORK_H_

#include <pthread.h>

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace fleetblame::aggregator {

class DeferredWork {
 public:
  DeferredWork() : thread_([this] { Loop(); }) {}
  // Does what is queued, then ends.
  ~DeferredWork() {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    thread_.join();
  }

  void Run(std::function<void()> work) {
    absl::MutexLock lock(&mu_);
    queue_.push_back(std::move(work));
  }

 private:
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !queue_.empty(); }

  void Loop() {
    pthread_setname_np(pthread_self(), "deferred");
    while (true) {
      std::function<void()> work;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(this, &DeferredWork::HasWork));
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  absl::Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_DEFERRED_WORK_H_
