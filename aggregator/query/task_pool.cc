// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/task_pool.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace fleetblame::aggregator {

TaskPool::TaskPool(int threads, size_t max_queued) : max_queued_(max_queued) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& t : threads_) t.join();
}

bool TaskPool::TrySubmit(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || threads_.empty() || queue_.size() >= max_queued_) return false;
  queue_.push_back(std::move(task));
  return true;
}

size_t TaskPool::queued() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size();
}

int TaskPool::running() const {
  absl::MutexLock lock(&mutex_);
  return running_;
}

void TaskPool::Run() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    auto ready = [this]()
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); };
    mutex_.Await(absl::Condition(&ready));
    if (queue_.empty()) return;
    std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    mutex_.Unlock();
    task();
    task = nullptr;
    mutex_.Lock();
    --running_;
  }
}

namespace {

// Outlives the call: a helper that comes late finds nothing left and touches nothing else.
struct Shared {
  absl::Mutex mutex;
  size_t next ABSL_GUARDED_BY(mutex) = 0;
  int inside ABSL_GUARDED_BY(mutex) = 0;
  size_t items = 0;
  const std::function<void(size_t, int)>* body = nullptr;

  void Work(int worker) {
    absl::MutexLock lock(&mutex);
    ++inside;
    while (next < items) {
      size_t item = next++;
      mutex.Unlock();
      (*body)(item, worker);
      mutex.Lock();
    }
    --inside;
  }
};

}  // namespace

void ParallelFor(TaskPool* helpers, size_t items,
                 const std::function<void(size_t item, int worker)>& body) {
  auto shared = std::make_shared<Shared>();
  shared->items = items;
  shared->body = &body;
  int wanted = static_cast<int>(
      std::min<size_t>(helpers == nullptr ? 0 : helpers->threads(), items == 0 ? 0 : items - 1));
  for (int worker = 1; worker <= wanted; ++worker) {
    if (!helpers->TrySubmit([shared, worker] { shared->Work(worker); })) break;
  }
  shared->Work(0);
  absl::MutexLock lock(&shared->mutex);
  auto idle = [&shared]() { return shared->inside == 0; };
  shared->mutex.Await(absl::Condition(&idle));
}

}  // namespace fleetblame::aggregator
