// SPDX-License-Identifier: Apache-2.0
//
// What a row of tag waits means, in a sentence: how often which disk starved, who held the tags,
// and what is known to help, as far as the figures speak for it. Pure functions.
#ifndef CLI_TAG_FINDINGS_H_
#define CLI_TAG_FINDINGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

// "hardware", "scheduler"; "unknown kind of".
std::string TagKindText(v1::TagKind kind);
// "tracepoint", "fentry", "kprobe", "inferred", "unknown".
std::string TagSourceText(v1::TagWaitSource source);

// A sum or maximum over waits; nothing when the end of none of them was seen. (A sleep is never
// over in no time.)
std::optional<uint64_t> SeenNs(uint64_t waits, uint64_t ns);

// Share of the pool that a disk held on average, 0 to 1; nothing when the pool's size is unknown.
std::optional<double> ShareOf(const v1::TagsResponse::Holder& holder);
// Tags that it held on average; nothing without samples.
std::optional<double> MeanOf(const v1::TagsResponse::Holder& holder);
// "sdb 92 %, sda 8 %", at most `most` of them; "-" when nobody looked.
std::string HoldersText(const v1::TagsResponse::Row& row, int most);

// One line without its end; empty when nothing waited. The host is named when there are several.
std::string Finding(const v1::TagsResponse::Row& row, bool name_host = false);

}  // namespace fleetblame::cli

#endif  // CLI_TAG_FINDINGS_H_
