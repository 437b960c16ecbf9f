// SPDX-License-Identifier: Apache-2.0
//
// Decides which log lines are repetitions. A message (the constant text, not
// its fields) may appear `burst` times in a window; the rest is counted, and
// the count is told when the window is over. Not thread-safe: the logger holds
// its lock around it. Memory is bounded by kSlots.
#ifndef COMMON_LOG_LIMITER_H_
#define COMMON_LOG_LIMITER_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace fleetblame {

class LogLimiter {
 public:
  struct Suppressed {
    std::string message;
    uint64_t count = 0;
  };

  LogLimiter(uint64_t burst, absl::Duration window) : burst_(burst), window_(window) {}

  // Whether to write this message now.
  bool Allow(std::string_view message, absl::Time now);

  // What was held back in windows that are over by `now`, or pushed out of the
  // table by another message. Each count is returned once.
  std::vector<Suppressed> TakeSuppressed(absl::Time now);

 private:
  // Messages that share a slot push each other out, which costs a few lines
  // more, never a line less than promised.
  static constexpr size_t kSlots = 128;

  struct Slot {
    std::string message;
    absl::Time window_start = absl::InfinitePast();
    uint64_t seen = 0;
  };

  uint64_t HeldBack(const Slot& slot) const { return slot.seen > burst_ ? slot.seen - burst_ : 0; }
  // Notes what the slot held back, and empties it.
  void Retire(Slot& slot);

  const uint64_t burst_;
  const absl::Duration window_;
  std::array<Slot, kSlots> slots_;
  std::vector<Suppressed> retired_;
};

}  // namespace fleetblame

#endif  // COMMON_LOG_LIMITER_H_
