// SPDX-License-Identifier: Apache-2.0
//
// The bytes that all streams together may hold between socket and disk. A stream that finds nothing
// left waits in line and reads no further, so that TCP slows its agent down.
//
// Threading: any thread. `granted` runs on the thread that gave bytes back (or that asks), without
// a lock held.
#ifndef AGGREGATOR_INGEST_BYTE_BUDGET_H_
#define AGGREGATOR_INGEST_BYTE_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/synchronization/mutex.h"

namespace fleetblame::aggregator {

class ByteBudget {
 public:
  // Bytes taken; given back when it is destroyed. Movable, and must not outlive the budget.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Release(); }

    // Corrects an estimate. Growing never waits: the bytes are in use already.
    void Resize(uint64_t bytes);
    void Release();
    uint64_t bytes() const { return bytes_; }

   private:
    friend class ByteBudget;
    Lease(ByteBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}

    ByteBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit ByteBudget(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // True with the bytes in `*lease` when they are free and nobody waits. A request larger than the
  // whole budget is served when nothing else is taken.
  bool TryTake(uint64_t bytes, Lease* lease);
  // `granted` is called with the bytes: at once when they are free, or later. First come, first
  // served.
  void TakeOrWait(uint64_t bytes, std::function<void(Lease)> granted);

  uint64_t used_bytes() const;
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  size_t waiting() const;

 private:
  struct Waiter {
    uint64_t bytes;
    std::function<void(Lease)> granted;
  };

  bool Fits(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return used_bytes_ == 0 || used_bytes_ + bytes <= capacity_bytes_;
  }
  // `delta` may be negative; then waiters are served.
  void Change(int64_t delta);

  const uint64_t capacity_bytes_;
  mutable absl::Mutex mu_;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_BYTE_BUDGET_H_
