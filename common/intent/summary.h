// SPDX-License-Identifier: Apache-2.0
//
// An intent in a few words for tables: the two canonical frames that tell most, the innermost one
// that is not mere plumbing, and where it came from: "ext4_da_write_end ← pwrite64". For people;
// not part of any identity, so the choice may get better with any release.
//
// Threading: pure functions. Errors: none.
#ifndef COMMON_INTENT_SUMMARY_H_
#define COMMON_INTENT_SUMMARY_H_

#include <span>
#include <string>
#include <string_view>

#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame {

struct IntentSummaryParts {
  std::string what;   // innermost meaningful function; empty when there are no frames
  std::string where;  // "pwrite64", "page fault", "wb_workfn" (worker), "kjournald2"; may be empty
};

// `frames` are canonical, innermost first.
IntentSummaryParts SummarizeIntent(std::span<const std::string_view> frames);

// "what ← where", or what there is of it; "(no stack)" for an intent without frames.
std::string IntentSummary(std::span<const std::string_view> frames);
std::string IntentSummary(const v1::Intent& intent);

}  // namespace fleetblame

#endif  // COMMON_INTENT_SUMMARY_H_
