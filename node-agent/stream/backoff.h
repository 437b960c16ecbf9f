// SPDX-License-Identifier: Apache-2.0
//
// How long to wait before the next connection: exponential with full jitter, from the very first
// retry, so that a fleet that lost its aggregator at one instant does not return at one instant.
//
// Threading: one thread.
#ifndef NODE_AGENT_STREAM_BACKOFF_H_
#define NODE_AGENT_STREAM_BACKOFF_H_

#include <algorithm>

#include "absl/random/random.h"
#include "absl/time/time.h"

namespace fleetblame::agent {

class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration most) : first_(first), most_(most), limit_(first) {}

  // Uniform between nothing and a limit that doubles with each call.
  absl::Duration Next() {
    const absl::Duration wait = limit_ * absl::Uniform<double>(random_, 0, 1);
    limit_ = std::min(limit_ * 2, most_);
    return wait;
  }
  void Reset() { limit_ = first_; }

 private:
  const absl::Duration first_;
  const absl::Duration most_;
  absl::Duration limit_;
  absl::BitGen random_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_STREAM_BACKOFF_H_
