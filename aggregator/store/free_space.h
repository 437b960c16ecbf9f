// SPDX-License-Identifier: Apache-2.0
//
// Whether the filesystem has room for more. Refusing a write early is better than running into the
// end of the disk: compaction, which frees space, needs some.
//
// Threading: any thread. Asks the kernel once a second at most.
#ifndef AGGREGATOR_STORE_FREE_SPACE_H_
#define AGGREGATOR_STORE_FREE_SPACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace fleetblame::aggregator {

class FreeSpace {
 public:
  FreeSpace(std::string path, uint64_t min_free_bytes)
      : path_(std::move(path)), min_free_bytes_(min_free_bytes) {}

  // RESOURCE_EXHAUSTED with a sentence while less than `min_free_bytes` is free.
  absl::Status Check() const;
  uint64_t free_bytes() const;

 private:
  void Refresh() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const uint64_t min_free_bytes_;
  mutable absl::Mutex mutex_;
  mutable int64_t asked_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable uint64_t free_bytes_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_FREE_SPACE_H_
