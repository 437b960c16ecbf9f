// SPDX-License-Identifier: Apache-2.0
//
// The Tracer for stock kernels with BTF: loads bpf/fleetblame.bpf.c, watches every dirtied page and
// every finished IO, and reads the rows that the kernel side has summed. docs/tracer.md says how
// the blame is found.
//
// Threading: as tracer.h says.
// Units: `ttl` is how long an entry that nothing uses is kept before it may be reclaimed.
// Errors: PERMISSION_DENIED without the privileges to load BPF, FAILED_PRECONDITION when the kernel
// cannot carry the tracer (no BTF, lockdown), NOT_FOUND for an unknown device, RESOURCE_EXHAUSTED
// when the kernel has no memory for the tables; each message names the way out.
#ifndef NODE_AGENT_TRACER_BPF_BPF_TRACER_H_
#define NODE_AGENT_TRACER_BPF_BPF_TRACER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// Sizes of the kernel tables. All are allocated when the tracer is made and never grow; a table
// that is full is counted in Snapshot::losses and makes blame coarser, never wrong.
struct BpfTracerOptions {
  uint32_t max_stacks = 16384;   // distinct kernel stacks, kept as long as the tracer lives
  uint32_t max_actors = 65536;   // distinct (comm, cgroup)
  uint32_t max_acts = 65536;     // distinct (actor, stack) that dirtied something
  uint32_t max_pages = 2097152;  // dirty 4 KiB pages whose dirtier is known
  uint32_t max_inodes = 65536;   // inodes whose last dirtier and name are known
  uint32_t max_rows = 8192;      // rows of one window
  uint32_t max_files = 64;       // files of one window that get rows of their own
  uint32_t max_bios = 32768;     // bios on their way
  absl::Duration ttl = absl::Seconds(120);
  // Direct IO and reads that a CPU may start, and pages that it may dirty, in a second before only
  // one in so many is looked at, and the rest is charged in proportion (confidence `estimated`); 0 = look at each one.
  uint32_t sample_above = 0;
  DeviceSelection devices;
  bool infer_tag_waits = false;  // at the cost of every context switch, where nothing better is
  bool tag_waits = true;         // tag starvation too, where the kernel gives a way to see it
};

absl::StatusOr<std::unique_ptr<Tracer>> CreateBpfTracer(const BpfTracerOptions& options);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_BPF_TRACER_H_
