// SPDX-License-Identifier: Apache-2.0
//
// Whether what a batch says of tag starvation is sane enough to be stored: bounds of
// tagwait.proto, references, texts, histograms. Pure; any thread.
#ifndef AGGREGATOR_INGEST_TAG_WAITS_CHECK_H_
#define AGGREGATOR_INGEST_TAG_WAITS_CHECK_H_

#include "absl/status/status.h"
#include "proto/fleetblame/v1/tagwait.pb.h"

namespace fleetblame::aggregator {

// The bounds of tagwait.proto.
inline constexpr int kMaxTagWaitRows = 1024;
inline constexpr int kMaxTagHolders = 1024;
inline constexpr int kMaxTagDisks = 256;
inline constexpr int kMaxTagSets = 64;
inline constexpr size_t kMaxTagWaitsBytes = 256 << 10;

// INVALID_ARGUMENT with a sentence that begins with "tag_waits". Enum values that this version does
// not know become UNSPECIFIED, sets that are not defined 0: neither is worth the batch that they
// came with. A batch cannot be made smaller by splitting its rows when this part
// is too large, so that is INVALID_ARGUMENT too.
absl::Status CheckTagWaits(v1::TagWaits* waits);

// Whether it says anything that needs a dictionary.
bool NamesDefinitions(const v1::TagWaits& waits);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_TAG_WAITS_CHECK_H_
