// SPDX-License-Identifier: Apache-2.0
//
// An allowance that comes back with time.
//
// Threading: any thread.
#ifndef AGGREGATOR_INGEST_TOKEN_BUCKET_H_
#define AGGREGATOR_INGEST_TOKEN_BUCKET_H_

#include <algorithm>
#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace fleetblame::aggregator {

class TokenBucket {
 public:
  TokenBucket(uint64_t burst, uint64_t per_second)
      : burst_(static_cast<double>(burst)),
        per_second_(static_cast<double>(per_second)),
        tokens_(burst_) {}

  // Takes `count` when there are that many (or the bucket is full: what is larger than the burst
  // must pass too, and leaves a debt), otherwise returns how long to wait for them.
  absl::Duration Take(uint64_t count, absl::Time now) {
    if (count == 0) return absl::ZeroDuration();
    absl::MutexLock lock(&mu_);
    if (last_ != absl::InfinitePast() && now > last_) {
      tokens_ = std::min(burst_, tokens_ + absl::ToDoubleSeconds(now - last_) * per_second_);
    }
    last_ = std::max(last_, now);
    double wanted = std::min(static_cast<double>(count), burst_);
    if (tokens_ >= wanted) {
      tokens_ -= static_cast<double>(count);
      return absl::ZeroDuration();
    }
    return absl::Seconds((wanted - tokens_) / per_second_);
  }

 private:
  const double burst_;
  const double per_second_;
  absl::Mutex mu_;
  double tokens_ ABSL_GUARDED_BY(mu_);
  absl::Time last_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_TOKEN_BUCKET_H_
