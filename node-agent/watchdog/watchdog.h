// SPDX-License-Identifier: Apache-2.0
//
// Keeps the agent within its budget of CPU and memory: compares what /proc/self says over the last
// minute with the budget and asks for less work, step by step, until it fits again.
//
//   0  everything
//   1  windows twice as long
//   2  windows six times as long, files no longer told apart
//   3  no trace mode either
//   4  tracer off for a while
//
// A step up takes effect at once; a step down only after a quiet time, so that it does not flap.
//
// Threading: one thread. Errors: a /proc that cannot be read leaves the step as it is.
#ifndef NODE_AGENT_WATCHDOG_WATCHDOG_H_
#define NODE_AGENT_WATCHDOG_WATCHDOG_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace fleetblame::agent {

struct Usage {
  absl::Duration cpu;  // user and system, since the process began
  uint64_t rss_bytes = 0;
};

// From `proc`/stat ("/proc/self" outside of tests).
std::optional<Usage> ReadUsage(const std::string& proc);

struct WatchdogOptions {
  double max_cpu_percent = 10;                 // of one core; 0 = no limit
  uint64_t max_rss_bytes = 0;                  // 0 = no limit
  absl::Duration span = absl::Minutes(1);      // over which CPU is averaged
  absl::Duration recovery = absl::Minutes(5);  // within the budget for so long: a step back
};

class Watchdog {
 public:
  static constexpr int kSteps = 4;

  explicit Watchdog(const WatchdogOptions& options) : options_(options) {}

  // Takes a reading (every few seconds) and returns the step that applies now.
  int Observe(absl::Time now, const Usage& usage);

  int step() const { return step_; }
  double cpu_percent() const { return cpu_percent_; }  // over the span
  uint64_t rss_bytes() const { return rss_bytes_; }
  // Why the step last changed, in a few words.
  const std::string& reason() const { return reason_; }

  // ---- what a step means
  int window_factor() const { return step_ == 0 ? 1 : step_ == 1 ? 2 : 6; }
  bool files() const { return step_ < 2; }
  bool trace() const { return step_ < 3; }
  bool tracer() const { return step_ < 4; }

 private:
  struct Reading {
    absl::Time time;
    absl::Duration cpu;
  };
  const WatchdogOptions options_;
  std::deque<Reading> readings_;
  int step_ = 0;
  absl::Time last_change_ = absl::InfinitePast();
  absl::Time within_since_ = absl::InfinitePast();
  double cpu_percent_ = 0;
  uint64_t rss_bytes_ = 0;
  std::string reason_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_WATCHDOG_WATCHDOG_H_
