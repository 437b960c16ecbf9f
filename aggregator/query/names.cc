// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/names.h"

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
  if (device == 0) return 0;
  auto d = cache_->Device(*view_, device);
  if (!d.ok()) return CountMissing(), 0;
  return Intern((*d)->name());
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
