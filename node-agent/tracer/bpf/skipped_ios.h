// SPDX-License-Identifier: Apache-2.0
//
// Charges the IOs that the kernel side did not look at (bpf/sample.bpf.h) in proportion to those
// that it did. A sampled IO stands for a known number of IOs, whatever their device; how many bytes
// and IOs of a device and kind were skipped is known exactly. So samples give the proportions
// and the counts give the sum (a ratio estimate), and the books balance as if nothing had been
// skipped.
//
// Pure functions.
// Units: bytes and IOs as in RowValues; `stands_for` counts the sampled IO itself too.
#ifndef NODE_AGENT_TRACER_BPF_SKIPPED_IOS_H_
#define NODE_AGENT_TRACER_BPF_SKIPPED_IOS_H_

#include <cstdint>
#include <vector>

#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// IOs with the same key and weight, as the kernel summed them.
struct Sample {
  Row row;
  uint64_t stands_for = 1;
  uint64_t groups_per_sample = 0;  // of pages: see unseen_pages.h
};

struct SkippedIos {
  uint64_t ios = 0;
  uint64_t bytes = 0;
};

// IOs of different kinds say nothing of each other: fb_skipped_kind.
enum class SkippedKind : uint8_t { kRead, kDirectWrite, kPageWrite };

inline constexpr SkippedKind kSkippedKinds[] = {SkippedKind::kRead, SkippedKind::kDirectWrite,
                                                SkippedKind::kPageWrite};

inline Operation OperationOf(SkippedKind kind) {
  return kind == SkippedKind::kRead ? Operation::kRead : Operation::kWrite;
}

// What of `skipped` goes to each sample, as a row of confidence `estimated` with the key of the sample
// and what that stands for. The rows add up to `skipped`, which is of the device and kind that all
// samples are of. Their times and histograms are those of the samples, made larger. Empty when the
// samples stand for nothing but themselves: then nobody can be charged.
std::vector<Sample> ChargeSkipped(const std::vector<Sample>& samples, const SkippedIos& skipped);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_SKIPPED_IOS_H_
