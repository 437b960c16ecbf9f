// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/free_space.h"

#include <sys/statvfs.h>

#include <chrono>

#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

constexpr int64_t kAskEveryNs = 1'000'000'000;

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void FreeSpace::Refresh() const {
  int64_t now_ns = SteadyNs();
  if (asked_ns_ != 0 && now_ns - asked_ns_ < kAskEveryNs) return;
  asked_ns_ = now_ns;
  struct statvfs info;
  // When the kernel does not say, the write itself will.
  if (statvfs(path_.c_str(), &info) != 0) return;
  free_bytes_ = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

absl::Status FreeSpace::Check() const {
  absl::MutexLock lock(&mutex_);
  Refresh();
  if (free_bytes_ >= min_free_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the filesystem of store ", path_, " has ", free_bytes_ >> 20,
                   " MiB free and the store wants ", min_free_bytes_ >> 20,
                   " MiB; free space or shorten retention, writing goes on by itself then"));
}

uint64_t FreeSpace::free_bytes() const {
  absl::MutexLock lock(&mutex_);
  Refresh();
  return free_bytes_;
}

}  // namespace fleetblame::aggregator
