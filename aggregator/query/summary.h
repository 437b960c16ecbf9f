// SPDX-License-Identifier: Apache-2.0
//
// Fills the Summary that every answer begins with: what it rests on and what is missing. Kept in
// one place so that all answers are honest in the same way. docs/query-api.md says what each field
// means.
//
// Threading: FillSummary may be called from any thread. Errors: those of the store.
#ifndef AGGREGATOR_QUERY_SUMMARY_H_
#define AGGREGATOR_QUERY_SUMMARY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/scan.h"
#include "aggregator/query/time_range.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

inline constexpr size_t kMaxSummaryGaps = 100;
inline constexpr size_t kMaxSummaryHosts = 100;

struct SummaryInput {
  ResolvedRange range;
  const ScanFacts* facts = nullptr;
  const Totals* totals = nullptr;
  // Clocks further apart than this are named.
  uint64_t skew_threshold_ns = 0;
  uint64_t missing_definitions = 0;
};

absl::Status FillSummary(const ScanEnv& env, const SummaryInput& in, v1::Summary* out);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_SUMMARY_H_
