// SPDX-License-Identifier: Apache-2.0
#include "node-agent/dictionary/dictionary.h"

#include <xxhash.h>

#include <limits>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "common/intent/intent.h"
#include "common/log.h"

namespace fleetblame::agent {
namespace {

absl::uint128 Identity(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::MakeUint128(hash.high64, hash.low64);
}

uint64_t RandomId() {
  absl::BitGen random;
  return absl::Uniform<uint64_t>(absl::IntervalClosedClosed, random, 1,
                                 std::numeric_limits<uint64_t>::max());
}

// What stands for a definition that is gone.
template <typename Message>
Message Unknown();
template <>
v1::Intent Unknown() {
  return BuildLostIntent("");
}
template <>
v1::Actor Unknown() {
  v1::Actor actor;
  actor.set_comm("?");
  return actor;
}
template <>
v1::Device Unknown() {
  v1::Device device;
  device.set_name("?");
  return device;
}
template <>
v1::File Unknown() {
  return v1::File();
}

}  // namespace

Dictionary::Dictionary(DictionaryOptions options)
    : options_(std::move(options)),
      files_(options_.files != nullptr ? *options_.files : PosixFileLayer()) {}

absl::StatusOr<std::unique_ptr<Dictionary>> Dictionary::Open(DictionaryOptions options) {
  auto dictionary = std::unique_ptr<Dictionary>(new Dictionary(std::move(options)));
  const std::string& directory = dictionary->options_.directory;
  FileLayer& files = dictionary->files_;
  if (auto status = files.CreateDirectories(directory); !status.ok()) return status;
  auto names = files.List(directory);
  if (!names.ok()) return names.status();
  absl::MutexLock lock(&dictionary->mutex_);
  for (const std::string& name : *names) {
    uint64_t id = 0;
    if (!DefinitionFile::ParseName(name, &id)) continue;
    auto file = DefinitionFile::Load(files, directory, id);
    if (!file.ok()) {
      LogWarning("a dictionary of an earlier run is unreadable", {{"status", file.status()}});
      continue;
    }
    dictionary->dictionaries_[id] = *std::move(file);
  }
  dictionary->Begin();
  return dictionary;
}

void Dictionary::Begin() {
  uint64_t id = RandomId();
  while (dictionaries_.contains(id)) id = RandomId();
  auto file = DefinitionFile::Create(files_, options_.directory, id);
  current_ = file.get();
  dictionaries_[id] = std::move(file);
  for (auto& known : known_) known.clear();
}

void Dictionary::NewDictionary() {
  absl::MutexLock lock(&mutex_);
  Begin();
}

uint64_t Dictionary::current_id() const {
  absl::MutexLock lock(&mutex_);
  return current_->dictionary_id();
}

bool Dictionary::full() const {
  absl::MutexLock lock(&mutex_);
  return current_->size(DefinitionKind::kIntent) > options_.max_intents ||
         current_->size(DefinitionKind::kActor) > options_.max_others ||
         current_->size(DefinitionKind::kDevice) > options_.max_others ||
         current_->size(DefinitionKind::kFile) > options_.max_others;
}

uint32_t Dictionary::NumberOf(DefinitionKind kind, absl::uint128 identity, std::string serialized) {
  absl::MutexLock lock(&mutex_);
  auto [it, added] = known_[static_cast<size_t>(kind)].try_emplace(identity, 0);
  if (added) it->second = current_->Add(kind, std::move(serialized));
  return it->second;
}

uint32_t Dictionary::Number(const v1::Intent& intent) {
  // Variants differ in offsets only; the first one stands for all of this kernel.
  return NumberOf(DefinitionKind::kIntent, Identity(intent.intent_id()),
                  intent.SerializeAsString());
}

uint32_t Dictionary::Number(const v1::Actor& actor) {
  std::string bytes = actor.SerializeAsString();
  const absl::uint128 identity = Identity(bytes);
  return NumberOf(DefinitionKind::kActor, identity, std::move(bytes));
}

uint32_t Dictionary::Number(const v1::Device& device) {
  std::string bytes = device.SerializeAsString();
  const absl::uint128 identity = Identity(bytes);
  return NumberOf(DefinitionKind::kDevice, identity, std::move(bytes));
}

uint32_t Dictionary::Number(const v1::File& file) {
  std::string bytes = file.SerializeAsString();
  const absl::uint128 identity = Identity(bytes);
  return NumberOf(DefinitionKind::kFile, identity, std::move(bytes));
}

absl::Status Dictionary::Persist() {
  absl::MutexLock lock(&mutex_);
  absl::Status status = current_->Persist(options_.sync);
  if (!status.ok()) ++write_errors_;
  return status;
}

DefinitionFile* Dictionary::Find(uint64_t dictionary_id) const {
  auto it = dictionaries_.find(dictionary_id);
  return it == dictionaries_.end() ? nullptr : it->second.get();
}

std::optional<v1::Intent> Dictionary::Intent(uint64_t dictionary_id, uint32_t number) const {
  absl::MutexLock lock(&mutex_);
  const DefinitionFile* file = Find(dictionary_id);
  if (file == nullptr) return std::nullopt;
  auto bytes = file->Read(DefinitionKind::kIntent, number);
  v1::Intent intent;
  if (!bytes || !intent.ParseFromString(*bytes)) return std::nullopt;
  return intent;
}

void Dictionary::SetEpoch(uint64_t dictionary_epoch) {
  absl::MutexLock lock(&mutex_);
  if (dictionary_epoch == epoch_) return;
  epoch_ = dictionary_epoch;
  for (auto& [id, file] : dictionaries_) file->ForgetAcknowledgements();
}

v1::Definitions Dictionary::Define(const DictionaryRefs& refs, bool all) {
  absl::MutexLock lock(&mutex_);
  v1::Definitions definitions;
  const DefinitionFile* file = Find(refs.dictionary_id);
  auto define = [&]<typename Message>(DefinitionKind kind,
                                      google::protobuf::Map<uint32_t, Message>* out) {
    for (const uint32_t number : refs.numbers[static_cast<size_t>(kind)]) {
      if (!all && file != nullptr && file->acknowledged(kind, number)) continue;
      const auto bytes = file == nullptr ? std::nullopt : file->Read(kind, number);
      Message message;
      if (!bytes || !message.ParseFromString(*bytes)) {
        ++lost_definitions_;
        message = Unknown<Message>();
      }
      (*out)[number] = std::move(message);
    }
  };
  define(DefinitionKind::kIntent, definitions.mutable_intents());
  define(DefinitionKind::kActor, definitions.mutable_actors());
  define(DefinitionKind::kDevice, definitions.mutable_devices());
  define(DefinitionKind::kFile, definitions.mutable_files());
  definitions.set_dictionary_id(refs.dictionary_id);
  return definitions;
}

void Dictionary::Acknowledge(const DictionaryRefs& refs) {
  absl::MutexLock lock(&mutex_);
  DefinitionFile* file = Find(refs.dictionary_id);
  if (file == nullptr) return;
  for (int kind = 0; kind < kDefinitionKinds; ++kind) {
    for (const uint32_t number : refs.numbers[kind]) {
      file->Acknowledge(static_cast<DefinitionKind>(kind), number);
    }
  }
}

void Dictionary::Retain(const std::set<uint64_t>& in_use) {
  absl::MutexLock lock(&mutex_);
  for (auto it = dictionaries_.begin(); it != dictionaries_.end();) {
    if (it->second.get() == current_ || in_use.contains(it->first)) {
      ++it;
      continue;
    }
    if (auto status = it->second->Remove(); !status.ok()) {
      LogWarning("an old dictionary cannot be removed", {{"status", status}});
    }
    it = dictionaries_.erase(it);
  }
}

Dictionary::Stats Dictionary::stats() const {
  absl::MutexLock lock(&mutex_);
  Stats stats;
  for (int kind = 0; kind < kDefinitionKinds; ++kind) {
    stats.numbers[kind] = current_->size(static_cast<DefinitionKind>(kind));
  }
  stats.dictionaries = dictionaries_.size();
  stats.lost_definitions = lost_definitions_;
  stats.write_errors = write_errors_;
  return stats;
}

}  // namespace fleetblame::agent
