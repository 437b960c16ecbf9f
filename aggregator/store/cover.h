// SPDX-License-Identifier: Apache-2.0
//
// Which blocks answer for a range of time: the coarsest ones that lie wholly in the range and are
// not stale, finer ones at the edges and in place of stale ones, so that each instant is covered
// exactly once. Where retention has dropped what is finer, the edge is rounded outward and a stale
// block is taken as it is.
//
// Threading: pure functions.
#ifndef AGGREGATOR_STORE_COVER_H_
#define AGGREGATOR_STORE_COVER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "aggregator/store/dirty_marks.h"

namespace fleetblame::aggregator {

// Instants before horizon[level] are no longer held at that level. Must not grow from level to
// level.
using Horizons = std::array<uint64_t, kLevels>;

struct Segment {
  Level level = Level::kRaw;
  // Whole buckets of `level`, or any instants when it is kRaw or `finer`.
  uint64_t from_unix_ns = 0;
  uint64_t to_unix_ns = 0;
  // The unit has nothing to offer here that is fine enough: ask those that it is made of.
  bool finer = false;
};

struct CoverRequest {
  UnitKind unit_kind = UnitKind::kHost;
  uint32_t unit = 0;
  uint64_t from_unix_ns = 0;  // instants in [from, to)
  uint64_t to_unix_ns = 0;
  Level coarsest = Level::k1d;
  // Finest level at which the unit has blocks.
  Level finest = Level::kRaw;
};

// Segments in order of time.
std::vector<Segment> Cover(const CoverRequest& request, const DirtyCopy& dirty,
                           const Horizons& horizons);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_COVER_H_
