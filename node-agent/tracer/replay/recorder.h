// SPDX-License-Identifier: Apache-2.0
//
// Records what a tracer says, for bug reports, tests and fleet simulation: a Tracer that hands
// everything through to another one and keeps a copy in a file (docs/recording-format.md) that
// CreateReplayTracer plays back. Of the symbol table only what the recorded stacks need is kept.
//
// A recording that cannot go on (disk full, size limit) ends; tracing goes on, and
// `recording_status` says why. A recording holds command names, cgroup and file paths: the file is
// made readable for its owner only.
//
// Threading: as Tracer; recording_status and recorded_bytes from any thread.
#ifndef NODE_AGENT_TRACER_REPLAY_RECORDER_H_
#define NODE_AGENT_TRACER_REPLAY_RECORDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

struct RecorderOptions {
  // The file never grows beyond this; 0 = no limit.
  uint64_t max_bytes = uint64_t{1} << 30;
};

class Recorder : public Tracer {
 public:
  // RESOURCE_EXHAUSTED when it ended at max_bytes, the error of the write when that failed.
  virtual absl::Status recording_status() const = 0;
  virtual uint64_t recorded_bytes() const = 0;

  // Writes what is pending and the end mark; called by the destructor too. Records nothing after.
  virtual absl::Status Finish() = 0;
};

// Creates `path` (an existing file is replaced) and takes over `inner`.
absl::StatusOr<std::unique_ptr<Recorder>> CreateRecorder(std::unique_ptr<Tracer> inner,
                                                         const std::string& path,
                                                         const RecorderOptions& options = {});

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_RECORDER_H_
