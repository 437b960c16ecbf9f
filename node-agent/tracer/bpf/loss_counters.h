// SPDX-License-Identifier: Apache-2.0
//
// The kernel side's counters of what it could not do (docs/counters.md), and what user space adds
// to them.
//
// Threading: Read is safe from any thread, the rest belongs to one.
// Units: counts since the tracer started; AddTo gives the increase within a window.
#ifndef NODE_AGENT_TRACER_BPF_LOSS_COUNTERS_H_
#define NODE_AGENT_TRACER_BPF_LOSS_COUNTERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fleetblame::agent {

class LoadedPrograms;

class LossCounters {
 public:
  explicit LossCounters(const LoadedPrograms* programs);

  // `counter` is an FB_COUNTER_.
  uint64_t Read(uint32_t counter) const;
  // Whether it grew since the last AddTo.
  bool HasGrown(uint32_t counter) const { return Read(counter) != seen_[counter]; }

  // User space saw one more of what `counter` counts.
  void Count(uint32_t counter) { ++own_[counter]; }

  // Ends the window.
  void AddTo(std::map<std::string, uint64_t>* losses);

 private:
  const LoadedPrograms* const programs_;
  std::vector<uint64_t> seen_;
  std::vector<uint64_t> own_;
  uint64_t missed_seen_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_LOSS_COUNTERS_H_
