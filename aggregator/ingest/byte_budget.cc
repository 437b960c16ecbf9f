// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/byte_budget.h"

#include <utility>
#include <vector>

namespace fleetblame::aggregator {

ByteBudget::Lease& ByteBudget::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void ByteBudget::Lease::Resize(uint64_t bytes) {
  if (budget_ == nullptr) return;
  int64_t delta = static_cast<int64_t>(bytes) - static_cast<int64_t>(bytes_);
  bytes_ = bytes;
  budget_->Change(delta);
}

void ByteBudget::Lease::Release() {
  if (budget_ == nullptr) return;
  ByteBudget* budget = std::exchange(budget_, nullptr);
  budget->Change(-static_cast<int64_t>(std::exchange(bytes_, 0)));
}

bool ByteBudget::TryTake(uint64_t bytes, Lease* lease) {
  absl::MutexLock lock(&mu_);
  // Nobody overtakes those who wait already.
  if (!waiters_.empty() || !Fits(bytes)) return false;
  used_bytes_ += bytes;
  *lease = Lease(this, bytes);
  return true;
}

void ByteBudget::TakeOrWait(uint64_t bytes, std::function<void(Lease)> granted) {
  {
    absl::MutexLock lock(&mu_);
    if (!waiters_.empty() || !Fits(bytes)) {
      waiters_.push_back({bytes, std::move(granted)});
      return;
    }
    used_bytes_ += bytes;
  }
  granted(Lease(this, bytes));
}

void ByteBudget::Change(int64_t delta) {
  std::vector<Waiter> served;
  {
    absl::MutexLock lock(&mu_);
    used_bytes_ += delta;
    while (!waiters_.empty() && Fits(waiters_.front().bytes)) {
      used_bytes_ += waiters_.front().bytes;
      served.push_back(std::move(waiters_.front()));
      waiters_.pop_front();
    }
  }
  for (Waiter& waiter : served) waiter.granted(Lease(this, waiter.bytes));
}

uint64_t ByteBudget::used_bytes() const {
  absl::MutexLock lock(&mu_);
  return used_bytes_;
}

size_t ByteBudget::waiting() const {
  absl::MutexLock lock(&mu_);
  return waiters_.size();
}

}  // namespace fleetblame::aggregator
