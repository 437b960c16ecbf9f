// SPDX-License-Identifier: Apache-2.0
//
// Makes a recording look as if another host had made it: a symbol table with other names, modules
// and addresses, stacks that fit it, other local ids, more load. Everything that the rows mean
// stays the same, which is the point: intent ids must not change.
//
// Threading: one thread.
#ifndef NODE_AGENT_TRACER_REPLAY_HOST_POSE_H_
#define NODE_AGENT_TRACER_REPLAY_HOST_POSE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/replay/replay_tracer.h"
#include "node-agent/tracer/tracer.h"

namespace re2 {
class RE2;
}

namespace fleetblame::agent {

struct RecordedSymbol {
  std::string name;
  std::string module;
  bool operator==(const RecordedSymbol&) const = default;
};

class HostPose {
 public:
  // INVALID_ARGUMENT for a malformed pattern or an impossible factor.
  static absl::StatusOr<std::unique_ptr<HostPose>> Create(const ReplayOptions& options);
  ~HostPose();

  // Takes in (more) symbols of the recording, by recorded address; newer names replace older ones.
  // True when that changed anything.
  bool AddSymbols(const std::map<uint64_t, RecordedSymbol>& symbols);
  void ClearSymbols();

  // The table as this host shows it, in the format of /proc/kallsyms.
  std::string Kallsyms() const;

  void Apply(Snapshot* snapshot) const;
  void Apply(TraceRecord* record) const;

 private:
  struct Posed {
    RecordedSymbol recorded;
    std::string name;
    std::string module;
    uint64_t shift = 0;
  };
  HostPose();
  Posed Pose(const RecordedSymbol& symbol);
  uint64_t MapAddress(uint64_t address) const;
  StackId MapStack(StackId id) const;
  ActorId MapActor(ActorId id) const;
  FileId MapFile(FileId id) const;
  void Scale(RowValues* values) const;

  ReplayOptions options_;
  std::vector<std::unique_ptr<re2::RE2>> symbol_patterns_;
  std::vector<std::unique_ptr<re2::RE2>> module_patterns_;
  std::map<std::string, uint64_t> module_areas_;
  std::map<uint64_t, Posed> symbols_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_HOST_POSE_H_
