// SPDX-License-Identifier: Apache-2.0
//
// Sums of coverage samples and loss counters, which travel beside the rows.
//
// Threading: pure functions.
#ifndef AGGREGATOR_STORE_BOOKS_H_
#define AGGREGATOR_STORE_BOOKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "aggregator/store/stored.pb.h"

namespace fleetblame::aggregator {

// By (device, direction).
using CoverageSums = std::map<std::pair<uint32_t, int>, v1::CoverageSample>;
void AddCoverage(const stored::Coverage& coverage, CoverageSums* sums);
stored::Coverage ToStored(const CoverageSums& sums);

// By name.
using LossSums = std::map<std::string, uint64_t>;
void AddLosses(const stored::Losses& losses, LossSums* sums);
stored::Losses ToStored(const LossSums& sums);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_BOOKS_H_
