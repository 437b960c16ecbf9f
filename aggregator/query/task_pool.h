// SPDX-License-Identifier: Apache-2.0
//
// A fixed number of threads behind a bounded queue. Two of them serve queries: one runs whole
// queries (its length is how many may wait), the other lends a hand to scans.
//
// Threading: TrySubmit and ParallelFor from any thread. The destructor runs what is queued, then
// joins; nothing may be submitted meanwhile.
#ifndef AGGREGATOR_QUERY_TASK_POOL_H_
#define AGGREGATOR_QUERY_TASK_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace fleetblame::aggregator {

class TaskPool {
 public:
  TaskPool(int threads, size_t max_queued);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // False when the queue is full (or the pool has no thread); the task is not kept then.
  bool TrySubmit(std::function<void()> task);

  int threads() const { return static_cast<int>(threads_.size()); }
  size_t queued() const;
  int running() const;

 private:
  void Run();

  const size_t max_queued_;
  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Calls body(i, worker) for every i in [0, items): on this thread as worker 0, and on threads of
// `helpers` that happen to be free as workers 1 .. helpers->threads(). Calls with one worker number
// never overlap. Returns when all are done. A busy pool costs speed only, never progress.
void ParallelFor(TaskPool* helpers, size_t items,
                 const std::function<void(size_t item, int worker)>& body);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_TASK_POOL_H_
