// SPDX-License-Identifier: Apache-2.0
//
// The identity of an intent (a kernel stack plus the reason for which writeback ran) over all
// hosts: a hash of its canonical frames. Agent and aggregator must agree on every byte of it;
// docs/intent-identity.md is the normative text, intent_test.cc pins it with golden values.
//
// Threading: pure functions. Errors: none; any input has an identity.
#ifndef COMMON_INTENT_INTENT_H_
#define COMMON_INTENT_INTENT_H_

#include <span>
#include <string>
#include <string_view>

#include "common/intent/frame.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame {

inline constexpr int kIntentIdBytes = 16;

// Canonicalises `frames` (innermost first, one for each address that the kernel reported) and
// returns the whole definition: id, modifier, canonical frames and one variant that keeps what
// canonicalisation drops. `modifier` is a wb_reason name or empty; `build_id` is raw bytes or
// empty.
v1::Intent BuildIntent(std::span<const SymbolizedFrame> frames, std::string_view modifier,
                       std::string_view kernel_release, std::string_view build_id);

// The intent of rows whose stack could not be kept: one frame, kLostFrame, no variant.
v1::Intent BuildLostIntent(std::string_view modifier);

// Recomputes the id (kIntentIdBytes raw bytes) from `modifier` and `frames` of a definition; the
// receiver compares it with `intent_id`, which a broken or hostile sender may have set to anything.
std::string ComputeIntentId(const v1::Intent& intent);

// Lower-case hexadecimal of an id; people type a prefix of it.
std::string IntentIdHex(std::string_view id);

// True when both definitions mean the same thing; ids alone decide nothing, since hashes collide.
bool SameIntent(const v1::Intent& a, const v1::Intent& b);

}  // namespace fleetblame

#endif  // COMMON_INTENT_INTENT_H_
