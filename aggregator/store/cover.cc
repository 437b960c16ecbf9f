// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/cover.h"

#include <algorithm>

namespace fleetblame::aggregator {
namespace {

Level Finer(Level level) { return static_cast<Level>(static_cast<int>(level) - 1); }

uint64_t Floor(uint64_t value, uint64_t step) { return value - value % step; }
uint64_t Ceiling(uint64_t value, uint64_t step) {
  uint64_t floor = Floor(value, step);
  if (floor == value) return value;
  return floor > UINT64_MAX - step ? Floor(UINT64_MAX, step) : floor + step;
}

class Coverer {
 public:
  Coverer(const CoverRequest& request, const DirtyCopy& dirty, const Horizons& horizons)
      : request_(request), dirty_(dirty), horizons_(horizons) {}

  std::vector<Segment> Run() {
    Range(std::max(request_.coarsest, request_.finest), request_.from_unix_ns, request_.to_unix_ns);
    return std::move(segments_);
  }

 private:
  uint64_t HorizonBelow(Level level) const { return horizons_[static_cast<size_t>(Finer(level))]; }

  void Emit(Level level, uint64_t from, uint64_t to, bool finer) {
    if (from >= to) return;
    if (!segments_.empty()) {
      Segment& last = segments_.back();
      // An outward rounding may reach back into what was taken already.
      from = std::max(from, last.to_unix_ns);
      if (from >= to) return;
      if (last.level == level && last.finer == finer && last.to_unix_ns == from) {
        last.to_unix_ns = to;
        return;
      }
    }
    segments_.push_back({level, from, to, finer});
  }

  void Range(Level level, uint64_t from, uint64_t to) {
    if (from >= to) return;
    if (level == Level::kRaw) return Emit(level, from, to, false);
    uint64_t step = LevelNs(level);
    uint64_t first = Ceiling(from, step);
    uint64_t last = Floor(to, step);
    if (first >= last) return Part(level, from, to);
    Part(level, from, first);
    WholeBuckets(level, first, last);
    Part(level, last, to);
  }

  // Instants that are no whole buckets of `level`.
  void Part(Level level, uint64_t from, uint64_t to) {
    if (from >= to) return;
    uint64_t gone = HorizonBelow(level);
    if (from < gone) {
      uint64_t step = LevelNs(level);
      uint64_t end = Ceiling(std::min(to, gone), step);
      Emit(level, Floor(from, step), end, false);
      from = end;
    }
    Below(level, from, to);
  }

  void WholeBuckets(Level level, uint64_t from, uint64_t to) {
    uint64_t step = LevelNs(level);
    for (uint64_t stale : dirty_.Stale(level, request_.unit_kind, request_.unit, from, to)) {
      Emit(level, from, stale, false);
      from = stale + step;
      if (stale < HorizonBelow(level)) {
        Emit(level, stale, from, false);
      } else {
        Below(level, stale, from);
      }
    }
    Emit(level, from, to, false);
  }

  void Below(Level level, uint64_t from, uint64_t to) {
    if (level > request_.finest) return Range(Finer(level), from, to);
    Emit(level, from, to, true);
  }

  const CoverRequest& request_;
  const DirtyCopy& dirty_;
  const Horizons& horizons_;
  std::vector<Segment> segments_;
};

}  // namespace

std::vector<Segment> Cover(const CoverRequest& request, const DirtyCopy& dirty,
                           const Horizons& horizons) {
  return Coverer(request, dirty, horizons).Run();
}

}  // namespace fleetblame::aggregator
