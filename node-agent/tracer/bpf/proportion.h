// SPDX-License-Identifier: Apache-2.0
//
// Shares of a whole that add up to it.
// Pure functions; a Dealer is not thread-safe.
#ifndef NODE_AGENT_TRACER_BPF_PROPORTION_H_
#define NODE_AGENT_TRACER_BPF_PROPORTION_H_

#include <cstdint>

#include "common/histogram.h"

namespace fleetblame::agent {

using Wide = unsigned __int128;

// Deals out a total in proportion to weights, one after the other, so that the parts add up to it.
class Dealer {
 public:
  // `weights`: the sum of all that will come, below 2^64.
  Dealer(uint64_t total, Wide weights) : total_(total), weights_(weights) {}

  uint64_t Next(Wide weight);

 private:
  const uint64_t total_;
  const Wide weights_;
  Wide seen_ = 0;
  uint64_t dealt_ = 0;
};

// A histogram of the same shape with `total` entries.
SparseHistogram Scaled(const SparseHistogram& histogram, uint64_t total);

// A sum over `from` things, for `to` of their kind.
uint64_t Scaled(uint64_t sum, uint64_t from, uint64_t to);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_PROPORTION_H_
