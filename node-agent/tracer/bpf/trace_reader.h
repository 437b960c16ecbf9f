// SPDX-License-Identifier: Apache-2.0
//
// Reads the ring into which the kernel side writes a record for each IO in trace mode.
//
// Threading: Poll may run on another thread than the rest of the tracer; not two Polls at once.
// Units: as in tracer.h.
// Errors: INTERNAL when the ring cannot be opened or read.
#ifndef NODE_AGENT_TRACER_BPF_TRACE_READER_H_
#define NODE_AGENT_TRACER_BPF_TRACE_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/definitions.h"
#include "node-agent/tracer/bpf/loss_counters.h"
#include "node-agent/tracer/tracer.h"

struct fleetblame_bpf;
struct ring_buffer;

namespace fleetblame::agent {

// The record that the kernel side wrote. A reason that is not below `reasons` becomes "no
// writeback".
TraceRecord MakeTraceRecord(const fb_trace& raw, size_t reasons);

class TraceReader {
 public:
  TraceReader(fleetblame_bpf* skeleton, size_t reasons, const LossCounters* counters,
              Definitions* definitions)
      : skeleton_(skeleton), reasons_(reasons), counters_(counters), definitions_(definitions) {}
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  // As Tracer::SetTrace and Tracer::PollTrace.
  void Set(bool on);
  absl::Status Poll(absl::Duration timeout, const std::function<void(const TraceRecord&)>& sink,
                    uint64_t* dropped);

 private:
  absl::Status Open();
  static int Take(void* context, void* data, size_t size);

  fleetblame_bpf* const skeleton_;
  const size_t reasons_;
  const LossCounters* const counters_;
  Definitions* const definitions_;
  ring_buffer* ring_ = nullptr;
  const std::function<void(const TraceRecord&)>* sink_ = nullptr;
  uint64_t taken_ = 0;
  uint64_t dropped_seen_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_TRACE_READER_H_
