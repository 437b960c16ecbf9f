// SPDX-License-Identifier: Apache-2.0
//
// What the numbers of stacks, actors and files in a Snapshot mean: each is defined in the first
// Snapshot that names it, and again when its place was given to another.
//
// Threading: WantTraced may be called from a second thread; the rest belongs to one.
// Errors: an id whose entry is gone, or is another's by now, stays undefined.
#ifndef NODE_AGENT_TRACER_BPF_DEFINITIONS_H_
#define NODE_AGENT_TRACER_BPF_DEFINITIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/bpf/cgroup_paths.h"
#include "node-agent/tracer/bpf/file_path.h"
#include "node-agent/tracer/tracer.h"

struct fleetblame_bpf;

namespace fleetblame::agent {

class Definitions {
 public:
  // How many of a stack's innermost addresses are not to be shown.
  using InnerFrames = std::function<size_t(const uint64_t* addresses, size_t count)>;

  Definitions(fleetblame_bpf* skeleton, const BpfTracerOptions& options, CgroupPaths cgroups);

  void Start() { mounts_.Reload(); }

  // A row of this window names the stacks and actors of `key`; as the kernel numbers them.
  void Want(const fb_row_key& key);
  void WantFile(FileId file) { wanted_.files.insert(file); }
  // Waits for tags name these. Their stacks begin where `inner` says.
  void WantTagWaits(std::set<uint32_t> stacks, std::set<uint32_t> actors, InnerFrames inner);
  void WantTraced(const fb_trace& record);

  // Defines what was wanted since the last call and is not known yet.
  void AddTo(Snapshot* snapshot);

 private:
  struct Ids {
    std::set<uint32_t> stacks;
    std::set<uint32_t> actors;  // with their generation
    std::set<uint32_t> files;

    void Take(Ids* other);
  };

  void DefineStack(uint32_t id, Snapshot* snapshot);
  void DefineActor(uint32_t id, Snapshot* snapshot);
  void DefineFile(uint32_t id, Snapshot* snapshot);

  fleetblame_bpf* const skeleton_;
  CgroupPaths cgroups_;
  MountTable mounts_;

  // What Snapshots have defined: the id (or key) that is known for each index.
  std::vector<bool> stacks_;
  std::vector<uint32_t> actors_;
  std::vector<fb_inode_key> files_;
  std::vector<bool> file_known_;

  Ids wanted_;                     // of this window
  std::set<uint32_t> tag_stacks_;  // of the wanted stacks, those of tag waits
  InnerFrames tag_inner_frames_;

  std::mutex traced_mutex_;
  Ids traced_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_DEFINITIONS_H_
