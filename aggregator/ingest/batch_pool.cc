// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/batch_pool.h"

#include <utility>

namespace fleetblame::aggregator {

void BatchPool::Recycle::operator()(DecodedBatch* batch) const {
  std::unique_ptr<DecodedBatch> owned(batch);
  if (pool != nullptr) pool->Return(std::move(owned));
}

BatchPool::Ptr BatchPool::Get() {
  {
    absl::MutexLock lock(&mu_);
    if (!idle_.empty()) {
      Idle taken = std::move(idle_.back());
      idle_.pop_back();
      idle_bytes_ -= taken.bytes;
      return Ptr(taken.batch.release(), Recycle{this});
    }
  }
  return Ptr(new DecodedBatch, Recycle{this});
}

void BatchPool::Return(std::unique_ptr<DecodedBatch> batch) {
  batch->lease.Release();
  // What it holds now is what its emptied fields keep.
  size_t bytes = batch->MemoryBytes() + batch->batch.rows().capacity();
  if (bytes > limits_.idle_batch_bytes) return;
  batch->batch.Clear();
  batch->rows.Clear();
  batch->wire_bytes = 0;
  batch->round = 0;
  absl::MutexLock lock(&mu_);
  if (idle_bytes_ + bytes > limits_.idle_bytes) return;
  idle_bytes_ += bytes;
  idle_.push_back({std::move(batch), bytes});
}

size_t BatchPool::idle() const {
  absl::MutexLock lock(&mu_);
  return idle_.size();
}

}  // namespace fleetblame::aggregator
