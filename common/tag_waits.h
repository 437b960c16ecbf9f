// SPDX-License-Identifier: Apache-2.0
//
// Sums, bounds and sanity of the message TagWaits (proto/fleetblame/v1/tagwait.proto).
//
// Threading: pure functions. Device, intent and actor numbers are compared, never looked up, so
// both arguments of a merge must have the same scope.
#ifndef COMMON_TAG_WAITS_H_
#define COMMON_TAG_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "proto/fleetblame/v1/tagwait.pb.h"

namespace fleetblame {

// Whether it says anything at all.
bool IsEmpty(const v1::TagWaits& waits);

// Adds the rows and holders of a later window; sets, disks and what is open are as that one says.
void MergeTagWaits(const v1::TagWaits& from, v1::TagWaits* into);

// Leaves out what disks waited that are not `wanted`.
void KeepWaiters(const std::function<bool(uint32_t device)>& wanted, v1::TagWaits* waits);

struct TagWaitLimits {
  int max_rows = 1024;
  int max_holders = 1024;
  int max_disks = 256;
  int max_sets = 64;
  size_t max_bytes = 256u << 10;
};
struct TagWaitLosses {
  uint64_t folded = 0;   // rows that lost intent and actor
  uint64_t dropped = 0;  // rows and holders
};
// Makes it fit, beginning with the rows of the least time.
TagWaitLosses LimitTagWaits(const TagWaitLimits& limits, v1::TagWaits* waits);

// INVALID_ARGUMENT when a peer or a file says what cannot be: histograms out of order or range,
// sets without number, more than the limits allow.
absl::Status CheckTagWaits(const v1::TagWaits& waits, const TagWaitLimits& limits = {});

}  // namespace fleetblame

#endif  // COMMON_TAG_WAITS_H_
