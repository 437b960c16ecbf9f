// SPDX-License-Identifier: Apache-2.0
//
// A recording as a sequence of windows: opens and checks a file once from end to end, then gives
// one window after the other, with the trace records and symbols that belong to it.
//
// Threading: one thread. Units: nanoseconds of the recorded CLOCK_BOOTTIME. Errors: see
// replay_tracer.h.
#ifndef NODE_AGENT_TRACER_REPLAY_RECORDING_H_
#define NODE_AGENT_TRACER_REPLAY_RECORDING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/tracer/replay/host_pose.h"
#include "node-agent/tracer/replay/recording_file.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// Records of one window beyond this are counted as dropped.
inline constexpr size_t kMaxTraceRecordsPerWindow = size_t{1} << 18;

struct RecordedWindow {
  Snapshot snapshot;
  std::vector<TraceRecord> trace;  // came before the snapshot
  uint64_t trace_dropped = 0;
  // Symbols that changed their meaning before the snapshot.
  std::vector<std::map<uint64_t, RecordedSymbol>> symbols;
};

class Recording {
 public:
  static absl::StatusOr<std::unique_ptr<Recording>> Open(const std::string& path);

  const TracerInfo& info() const { return info_; }
  const std::map<DeviceNumber, std::string>& devices() const { return devices_; }
  // The meaning of every address as it is first named.
  const std::map<uint64_t, RecordedSymbol>& symbols() const { return symbols_; }

  uint64_t windows() const { return windows_; }
  // Of the first and the last window; 0 when there is none.
  uint64_t start_boot_ns() const { return start_boot_ns_; }
  uint64_t end_boot_ns() const { return end_boot_ns_; }

  // OUT_OF_RANGE behind the last window; `*window` then holds the trace records that came after it.
  absl::Status Next(RecordedWindow* window);
  void Rewind();

 private:
  explicit Recording(std::unique_ptr<RecordingReader> reader) : reader_(std::move(reader)) {}
  absl::Status Scan();
  absl::Status ScanFrame(const RecordingFrame& frame);

  std::unique_ptr<RecordingReader> reader_;
  TracerInfo info_;
  std::map<DeviceNumber, std::string> devices_;
  std::map<uint64_t, RecordedSymbol> symbols_;
  uint64_t windows_ = 0;
  uint64_t start_boot_ns_ = 0;
  uint64_t end_boot_ns_ = 0;
  uint64_t data_end_ = 0;  // offset behind the last frame that is good
  bool ended_ = false;     // saw the end mark
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_RECORDING_H_
