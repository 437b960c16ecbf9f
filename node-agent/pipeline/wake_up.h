// SPDX-License-Identifier: Apache-2.0
//
// What the agent's main thread sleeps on: a time, a signal to stop, or another thread that has
// something for it.
//
// Threading: Wait from one thread, Poke from any. Block must come before the first thread is made,
// so that every thread inherits the blocked signals.
#ifndef NODE_AGENT_PIPELINE_WAKE_UP_H_
#define NODE_AGENT_PIPELINE_WAKE_UP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fleetblame::agent {

class WakeUp {
 public:
  // Blocks SIGINT and SIGTERM for the process and receives them here instead.
  static absl::StatusOr<std::unique_ptr<WakeUp>> Block();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  // Returns at `deadline`, or earlier when poked or stopped.
  void Wait(absl::Time deadline);
  void Poke();
  // Whether a signal to stop came.
  bool stopping() const { return stopping_; }

 private:
  WakeUp(int signal_fd, int event_fd) : signal_fd_(signal_fd), event_fd_(event_fd) {}
  const int signal_fd_;
  const int event_fd_;
  bool stopping_ = false;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_PIPELINE_WAKE_UP_H_
