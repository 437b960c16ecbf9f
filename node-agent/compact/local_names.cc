// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/local_names.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/intent/intent.h"
#include "common/utf8.h"
#include "node-agent/dictionary/device_info.h"

namespace fleetblame::agent {
namespace {

constexpr size_t kMaxPathBytes = 1024;
constexpr char kUnknownTop[] = "?";
constexpr absl::Duration kDeviceMaxAge = absl::Seconds(30);

// sysfs says what a device's firmware says, which may be anything.
v1::Device Clean(v1::Device device) {
  for (std::string* text :
       {device.mutable_name(), device.mutable_disk(), device.mutable_model(),
        device.mutable_persistent_id(), device.mutable_top(), device.mutable_alias()}) {
    *text = ToUtf8(*text);
  }
  for (std::string& lower : *device.mutable_lower()) lower = ToUtf8(lower);
  return device;
}

}  // namespace

LocalNames::LocalNames(Tracer* tracer, Dictionary* dictionary)
    : tracer_(tracer),
      dictionary_(dictionary),
      replayed_(tracer->info().kind == "replay"),
      symbols_(tracer) {}

absl::Status LocalNames::Define(const Snapshot& snapshot) {
  for (const StackDefinition& stack : snapshot.stacks) {
    // Usually new; when it is not, what was derived from the old meaning goes.
    if (!symbols_.Known(stack.id)) continue;
    absl::erase_if(intents_, [&](const auto& entry) { return entry.first.first == stack.id; });
  }
  for (const ActorDefinition& definition : snapshot.actors) {
    KnownActor known;
    known.actor.set_comm(ToUtf8(definition.comm));
    known.actor.set_cgroup(ToUtf8Path(definition.cgroup_path, kMaxPathBytes));
    known.actor.set_cgroup_id(definition.cgroup_id);
    known.actor.set_kernel_thread(definition.kernel_thread);
    actors_[definition.id] = std::move(known);
  }
  for (const FileDefinition& definition : snapshot.files) {
    auto file = std::make_shared<v1::File>();
    file->set_path(ToUtf8Path(definition.path, kMaxPathBytes));
    file->set_fs_major(definition.filesystem.major);
    file->set_fs_minor(definition.filesystem.minor);
    file->set_inode(definition.inode);
    file->set_generation(definition.generation);
    auto [it, added] = files_.insert_or_assign(definition.id, std::move(file));
    if (added) file_order_.push_back(definition.id);
    while (files_.size() > kMaxFiles && !file_order_.empty()) {
      files_.erase(file_order_.front());
      file_order_.pop_front();
    }
  }
  return symbols_.Define(snapshot.stacks);
}

void LocalNames::ForgetNumbersOfOldDictionary() {
  const uint64_t id = dictionary_->current_id();
  if (id == dictionary_id_) return;
  dictionary_id_ = id;
  intents_.clear();
  for (auto& [actor, known] : actors_) known.number = 0;
  for (auto& [device, known] : devices_) known.number = 0;
}

std::string_view LocalNames::Reason(uint8_t reason) const {
  const auto& reasons = tracer_->info().reasons;
  return reason < reasons.size() ? std::string_view(reasons[reason]) : std::string_view();
}

uint32_t LocalNames::Intent(StackId stack, uint8_t reason) {
  if (stack == kNoStack) return 0;
  ForgetNumbersOfOldDictionary();
  const auto key = std::pair(stack, reason);
  if (auto it = intents_.find(key); it != intents_.end()) return it->second;
  const TracerInfo& info = tracer_->info();
  uint32_t number = 0;
  if (stack == kLostStack) {
    number = dictionary_->Number(BuildLostIntent(Reason(reason)));
  } else {
    const std::vector<SymbolizedFrame> frames = symbols_.Frames(stack);
    if (frames.empty()) {
      ++unknown_ids_;
      return 0;
    }
    number = dictionary_->Number(
        BuildIntent(frames, Reason(reason), info.kernel_release, info.vmlinux_build_id));
  }
  intents_[key] = number;
  return number;
}

const v1::Actor* LocalNames::FindActor(ActorId id) const {
  auto it = actors_.find(id);
  return it == actors_.end() ? nullptr : &it->second.actor;
}

uint32_t LocalNames::Actor(ActorId actor) {
  if (actor == kNoActor) return 0;
  ForgetNumbersOfOldDictionary();
  auto it = actors_.find(actor);
  if (it == actors_.end()) {
    ++unknown_ids_;
    return 0;
  }
  if (it->second.number == 0) it->second.number = dictionary_->Number(it->second.actor);
  return it->second.number;
}

v1::Device LocalNames::LookAtDevice(const DeviceKey& key) const {
  const auto [major, minor] = key.device;
  const bool below = key.top != DeviceNumber{};
  v1::Device device;
  if (replayed_) {
    // A recording's devices are those of another host.
    device = NameDevice(major, minor);
    if (key.partition != 0) {
      device.set_disk(device.name());
      device.set_name(absl::StrCat(device.name(), "p", key.partition));
    }
    if (below) {
      device.set_top(key.top == key.device ? kUnknownTop
                                           : NameDevice(key.top.major, key.top.minor).name());
    }
    return device;
  }
  device = ReadPartition("/sys", major, minor, key.partition);
  if (below) {
    device.set_top(key.top == key.device ? kUnknownTop
                                         : ReadDevice("/sys", key.top.major, key.top.minor).name());
  }
  return Clean(std::move(device));
}

LocalNames::KnownDevice& LocalNames::FindDevice(const DeviceKey& key) {
  auto [it, added] = devices_.try_emplace(key);
  KnownDevice& known = it->second;
  // Numbers are given to other disks, and stacked devices are changed while they work.
  const absl::Time now = absl::Now();
  if (!added && (replayed_ || now - known.read < kDeviceMaxAge)) return known;
  known.read = now;
  v1::Device device = LookAtDevice(key);
  if (!added && device.SerializeAsString() == known.device.SerializeAsString()) return known;
  known.device = std::move(device);
  known.number = 0;
  return known;
}

uint32_t LocalNames::Device(DeviceNumber device, uint8_t partition, DeviceNumber top) {
  ForgetNumbersOfOldDictionary();
  KnownDevice& known = FindDevice({device, partition, top});
  if (known.number == 0) known.number = dictionary_->Number(known.device);
  return known.number;
}

const std::string& LocalNames::DeviceName(DeviceNumber device) {
  return FindDevice({.device = device}).device.name();
}

std::shared_ptr<const v1::File> LocalNames::FindFile(FileId id) const {
  auto it = files_.find(id);
  return it == files_.end() ? nullptr : it->second;
}

}  // namespace fleetblame::agent
