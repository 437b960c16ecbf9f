// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/names.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {

NameId Names::Intern(std::string_view text) {
  if (text.empty()) return 0;
  absl::MutexLock lock(&mutex_);
  auto [at, inserted] = ids_.try_emplace(std::string(text), static_cast<NameId>(texts_.size()));
  if (inserted) texts_.emplace_back(text);
  return at->second;
}

const std::string& Names::Text(NameId id) const {
  absl::MutexLock lock(&mutex_);
  return texts_[id];
}

NameId Names::Comm(ActorNumber actor) {
  auto a = Actor(actor);
  return a == nullptr ? 0 : Intern(a->comm());
}

NameId Names::Cgroup(ActorNumber actor) {
  auto a = Actor(actor);
  return a == nullptr ? 0 : Intern(a->cgroup());
}

NameId Names::DeviceName(DeviceNumber device) {
  auto d = Device(device);
  if (d == nullptr) return 0;
  return NoteDevice(d->disk().empty() ? d->name() : d->disk(), *d);
}

NameId Names::PartitionName(DeviceNumber device) {
  auto d = Device(device);
  return d == nullptr ? 0 : NoteDevice(d->name(), *d);
}

NameId Names::TopDeviceName(DeviceNumber device) {
  auto d = Device(device);
  if (d == nullptr) return 0;
  return d->top().empty() ? DeviceName(device) : Intern(d->top());
}

std::shared_ptr<const v1::Device> Names::Device(DeviceNumber device) {
  if (device == 0) return nullptr;
  auto d = cache_->Device(*view_, device);
  if (!d.ok()) return CountMissing(), nullptr;
  return *std::move(d);
}

NameId Names::NoteDevice(std::string_view name, const v1::Device& device) {
  const NameId id = Intern(name);
  v1::Device seen = device;
  seen.clear_top();
  if (name != seen.name()) {
    // What is known of a partition holds for its disk, but for its number.
    seen.set_name(std::string(name));
    seen.clear_disk();
    seen.clear_major();
    seen.clear_minor();
  }
  absl::MutexLock lock(&mutex_);
  auto [at, inserted] = devices_.try_emplace(id, seen);
  if (inserted) return id;
  v1::Device& common = at->second;
  auto keep = [](const std::string& other, std::string* text) {
    if (*text != other) text->clear();
  };
  keep(seen.disk(), common.mutable_disk());
  keep(seen.model(), common.mutable_model());
  keep(seen.persistent_id(), common.mutable_persistent_id());
  keep(seen.alias(), common.mutable_alias());
  if (common.major() != seen.major() || common.minor() != seen.minor()) {
    common.clear_major();
    common.clear_minor();
  }
  if (common.rotational() != seen.rotational()) common.clear_rotational();
  if (common.lower_size() != seen.lower_size() ||
      !std::equal(common.lower().begin(), common.lower().end(), seen.lower().begin())) {
    common.clear_lower();
  }
  common.set_stacked(common.stacked() || seen.stacked());
  return id;
}

v1::Device Names::DeviceOf(NameId name) const {
  absl::MutexLock lock(&mutex_);
  auto at = devices_.find(name);
  return at == devices_.end() ? v1::Device() : at->second;
}

NameId Names::Modifier(IntentNumber intent) {
  auto i = Intent(intent);
  return i == nullptr ? 0 : Intern(i->modifier());
}

std::string Names::Path(FileNumber file) {
  auto f = File(file);
  return f == nullptr ? "" : f->path();
}

NameId Names::FileGroup(FileNumber number) {
  auto file = File(number);
  if (file == nullptr) return 0;
  const bool full_path = !file->path().empty() && file->path()[0] == '/';
  std::string key = full_path ? file->path() : absl::StrCat("#", number);
  absl::MutexLock lock(&mutex_);
  auto [at, inserted] = file_ids_.try_emplace(key, static_cast<NameId>(files_.size()));
  if (inserted) {
    files_.push_back({*file, number, false});
  } else if (files_[at->second].number != number) {
    files_[at->second].several = true;
  }
  return at->second;
}

v1::File Names::FileOf(NameId group) const {
  absl::MutexLock lock(&mutex_);
  const Files& files = files_[group];
  if (!files.several) return files.first;
  v1::File path_only;
  path_only.set_path(files.first.path());
  return path_only;
}

std::shared_ptr<const v1::Intent> Names::Intent(IntentNumber intent) {
  if (intent == 0) return nullptr;
  auto i = cache_->Intent(*view_, intent);
  if (!i.ok()) return CountMissing(), nullptr;
  return *std::move(i);
}

std::shared_ptr<const v1::Actor> Names::Actor(ActorNumber actor) {
  if (actor == 0) return nullptr;
  auto a = cache_->Actor(*view_, actor);
  if (!a.ok()) return CountMissing(), nullptr;
  return *std::move(a);
}

std::shared_ptr<const v1::File> Names::File(FileNumber file) {
  if (file == 0) return nullptr;
  auto f = cache_->File(*view_, file);
  if (!f.ok()) return CountMissing(), nullptr;
  return *std::move(f);
}

void Names::CountMissing() {
  absl::MutexLock lock(&mutex_);
  ++missing_;
}

uint64_t Names::missing() const {
  absl::MutexLock lock(&mutex_);
  return missing_;
}

}  // namespace fleetblame::aggregator
