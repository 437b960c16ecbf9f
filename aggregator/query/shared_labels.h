// SPDX-License-Identifier: Apache-2.0
//
// What outliers have in common: labels, and the kernel release, that a larger part of them has than
// of the other hosts. Pure.
#ifndef AGGREGATOR_QUERY_SHARED_LABELS_H_
#define AGGREGATOR_QUERY_SHARED_LABELS_H_

#include <vector>

#include "aggregator/store/store.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

inline constexpr size_t kMaxSharedLabels = 20;

// Most telling first: by the difference of the two shares, then by how many outliers have it.
std::vector<v1::CompareHostsResponse::SharedLabel> FindSharedLabels(
    const std::vector<const HostRecord*>& outliers, const std::vector<const HostRecord*>& others);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_SHARED_LABELS_H_
