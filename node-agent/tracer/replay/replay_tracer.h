// SPDX-License-Identifier: Apache-2.0
//
// A Tracer that plays a recorded file (docs/recording-format.md), unchanged or posing as another
// host: another KASLR base, other compiler suffixes, a filesystem as a module, other local ids,
// more load. One recording can so stand for a whole fleet.
//
// Threading: as Tracer. Units: nanoseconds of CLOCK_BOOTTIME. Errors: CreateReplayTracer checks the
// whole file: NOT_FOUND/PERMISSION_DENIED for the file, INVALID_ARGUMENT when it is no recording,
// UNIMPLEMENTED when a newer release wrote it, DATA_LOSS when its beginning is damaged. A file that
// breaks off or is damaged later is played up to there, and TracerInfo::limitations says so.
#ifndef NODE_AGENT_TRACER_REPLAY_REPLAY_TRACER_H_
#define NODE_AGENT_TRACER_REPLAY_REPLAY_TRACER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// Renames symbols: RE2 `pattern`, matched anywhere in a name; `replacement` may use \0 to \9.
// {"^ext4_writepages$", "\\0.isra.0"} adds a compiler suffix.
struct SymbolRewrite {
  std::string pattern;
  std::string replacement;
};

// Moves the symbols that match to another module ("" = into the core kernel), and their addresses
// to that module's own area.
struct ModuleRewrite {
  std::string pattern;
  std::string module;
};

struct ReplayOptions {
  // 0: each Collect returns the next window at once. Otherwise Collect waits until that window
  // would be over in recorded time divided by `speed`.
  double speed = 0;

  enum class Clock {
    kRecorded,  // times as they stand in the file
    kStartNow,  // the first window begins when the tracer is created
    kEndNow,    // the last window of the file ends then; OUT_OF_RANGE when the host is not up that
                // long
  };
  Clock clock = Clock::kRecorded;

  // Starts over at the end, times going on; there is no OUT_OF_RANGE then.
  bool loop = false;

  // Added to every kernel address.
  int64_t kaslr_shift = 0;
  std::vector<SymbolRewrite> symbol_rewrites;
  std::vector<ModuleRewrite> module_rewrites;

  // Not 0: local ids (stacks, actors, files) are renumbered by it, as another host would number
  // them.
  uint64_t seed = 0;

  // Every count, byte and sum times this; books stay balanced.
  uint32_t load_factor = 1;

  // Not empty: stands for the recorded ones.
  std::string kernel_release;
  std::string vmlinux_build_id;
};

absl::StatusOr<std::unique_ptr<Tracer>> CreateReplayTracer(const std::string& path,
                                                           const ReplayOptions& options = {});

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_REPLAY_TRACER_H_
