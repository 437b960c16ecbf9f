// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/definitions.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/tracer/bpf/table_ids.h"

namespace fleetblame::agent {

void Definitions::Ids::Take(Ids* other) {
  stacks.merge(other->stacks);
  actors.merge(other->actors);
  files.merge(other->files);
  *other = Ids();
}

Definitions::Definitions(fleetblame_bpf* skeleton, const BpfTracerOptions& options,
                         CgroupPaths cgroups)
    : skeleton_(skeleton),
      cgroups_(std::move(cgroups)),
      stacks_(options.max_stacks, false),
      actors_(options.max_actors, 0),
      files_(options.max_inodes, fb_inode_key{}),
      file_known_(options.max_inodes, false) {}

void Definitions::Want(const fb_row_key& key) {
  wanted_.stacks.insert(key.dirtier_stack);
  wanted_.stacks.insert(key.issuer_stack);
  wanted_.actors.insert(key.dirtier_actor);
  wanted_.actors.insert(key.issuer_actor);
}

void Definitions::WantTagWaits(std::set<uint32_t> stacks, std::set<uint32_t> actors,
                               InnerFrames inner) {
  wanted_.stacks.insert(stacks.begin(), stacks.end());
  wanted_.actors.merge(actors);
  tag_stacks_ = std::move(stacks);
  tag_inner_frames_ = std::move(inner);
}

void Definitions::WantTraced(const fb_trace& record) {
  std::lock_guard<std::mutex> lock(traced_mutex_);
  traced_.stacks.insert(record.dirtier_stack);
  traced_.stacks.insert(record.issuer_stack);
  traced_.actors.insert(record.dirtier_actor);
  traced_.actors.insert(record.issuer_actor);
  traced_.files.insert(record.file);
}

void Definitions::AddTo(Snapshot* snapshot) {
  {
    std::lock_guard<std::mutex> lock(traced_mutex_);
    wanted_.Take(&traced_);
  }
  cgroups_.NewWindow();
  for (uint32_t id : wanted_.stacks) DefineStack(id, snapshot);
  for (uint32_t id : wanted_.actors) DefineActor(id, snapshot);
  for (uint32_t id : wanted_.files) DefineFile(id, snapshot);
  wanted_ = Ids();
  tag_stacks_.clear();
}

void Definitions::DefineStack(uint32_t id, Snapshot* snapshot) {
  if (id < FB_STACK_FIRST || id >= stacks_.size() || stacks_[id]) return;
  fb_stack stack{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.stacks), &id, &stack) != 0) return;
  StackDefinition definition;
  definition.id = id;
  definition.addresses.assign(stack.address,
                              stack.address + std::min<uint32_t>(stack.frames, FB_MAX_FRAMES));
  if (tag_stacks_.contains(id)) {
    // From the block layer's entry outwards, as the stacks of those who issue IO.
    const size_t inner =
        tag_inner_frames_(definition.addresses.data(), definition.addresses.size());
    definition.addresses.erase(definition.addresses.begin(), definition.addresses.begin() + inner);
  }
  stacks_[id] = true;
  snapshot->stacks.push_back(std::move(definition));
}

void Definitions::DefineActor(uint32_t id, Snapshot* snapshot) {
  const uint32_t index = IdIndex(id);
  if (index == 0 || index >= actors_.size() || actors_[index] == id) return;
  fb_actor actor{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.actors), &index, &actor) != 0) return;
  if (actor.id != id) return;
  ActorDefinition definition;
  definition.id = index;
  definition.comm.assign(actor.key.comm, strnlen(actor.key.comm, sizeof(actor.key.comm)));
  definition.cgroup_id = actor.key.cgroup_id;
  definition.cgroup_path =
      cgroups_.Resolve(actor.key.cgroup_id, actor.key.flags & FB_ACTOR_CGROUP_V1);
  definition.kernel_thread = actor.key.flags & FB_ACTOR_KTHREAD;
  actors_[index] = id;
  snapshot->actors.push_back(std::move(definition));
}

void Definitions::DefineFile(uint32_t id, Snapshot* snapshot) {
  if (id == kNoFile || id >= files_.size()) return;
  fb_file file{};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.files), &id, &file) != 0) return;
  if (file_known_[id] && std::memcmp(&files_[id], &file.key, sizeof(file.key)) == 0) return;
  FileDefinition definition;
  definition.id = id;
  definition.filesystem = UnpackDevice(file.key.dev);
  definition.inode = file.key.ino;
  definition.generation = file.key.generation;
  std::string mount = mounts_.MountPoint(definition.filesystem);
  if (mount.empty()) {
    mounts_.Reload();
    mount = mounts_.MountPoint(definition.filesystem);
  }
  std::string_view names(file.path, std::min<size_t>(file.path_bytes, sizeof(file.path)));
  definition.path = BuildPath(names, file.complete, mount);
  files_[id] = file.key;
  file_known_[id] = true;
  snapshot->files.push_back(std::move(definition));
}

}  // namespace fleetblame::agent
