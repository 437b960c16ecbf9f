// SPDX-License-Identifier: Apache-2.0
#include "common/log_limiter.h"

#include <utility>

#include "absl/hash/hash.h"

namespace fleetblame {

bool LogLimiter::Allow(std::string_view message, absl::Time now) {
  Slot& slot = slots_[absl::HashOf(message) % kSlots];
  const bool over = now - slot.window_start >= window_ || now < slot.window_start;
  if (slot.message != message || over) {
    Retire(slot);
    slot.message = message;
    slot.window_start = now;
  }
  return ++slot.seen <= burst_;
}

std::vector<LogLimiter::Suppressed> LogLimiter::TakeSuppressed(absl::Time now) {
  for (Slot& slot : slots_) {
    if (HeldBack(slot) > 0 && now - slot.window_start >= window_) Retire(slot);
  }
  return std::exchange(retired_, {});
}

void LogLimiter::Retire(Slot& slot) {
  // The logger takes the list after every line, so it stays short; the bound
  // holds for any other caller.
  if (HeldBack(slot) > 0 && retired_.size() < kSlots)
    retired_.push_back({std::move(slot.message), HeldBack(slot)});
  slot = Slot{};
}

}  // namespace fleetblame
