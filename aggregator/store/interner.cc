// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/interner.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "aggregator/store/rocks_status.h"
#include "aggregator/store/stored.pb.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kIntentIdBytes = 16;
constexpr size_t kMaxFoundEntries = 100'000;
constexpr size_t kMaxFoundKeyBytes = 300;
constexpr size_t kMaxCachedIntents = 20'000;
constexpr char kOther[] = "…/other";

size_t Slot(DefinitionKind kind) { return static_cast<size_t>(kind); }

bool SameCanonical(const v1::Intent& a, const v1::Intent& b) {
  return a.modifier() == b.modifier() &&
         std::equal(a.frames().begin(), a.frames().end(), b.frames().begin(), b.frames().end());
}

bool SameFrame(const v1::RawFrame& a, const v1::RawFrame& b) {
  return a.symbol() == b.symbol() && a.module() == b.module() && a.offset() == b.offset();
}

bool SameVariant(const v1::IntentVariant& a, const v1::IntentVariant& b) {
  return a.kernel_release() == b.kernel_release() && a.vmlinux_build_id() == b.vmlinux_build_id() &&
         std::equal(a.frames().begin(), a.frames().end(), b.frames().begin(), b.frames().end(),
                    SameFrame);
}

bool HasVariant(const v1::Intent& intent, const v1::IntentVariant& variant) {
  return std::any_of(intent.variants().begin(), intent.variants().end(),
                     [&variant](const auto& known) { return SameVariant(known, variant); });
}

// Adds to `*known` the variants of `intent` that it lacks; false when there is nothing to add.
bool MergeVariants(const v1::Intent& intent, size_t max_variants, v1::Intent* known) {
  bool changed = false;
  for (const v1::IntentVariant& variant : intent.variants()) {
    if (static_cast<size_t>(known->variants_size()) >= max_variants) break;
    if (HasVariant(*known, variant)) continue;
    *known->add_variants() = variant;
    changed = true;
  }
  return changed;
}

bool LacksVariant(const v1::Intent& known, const v1::Intent& intent, size_t max_variants) {
  if (static_cast<size_t>(known.variants_size()) >= max_variants) return false;
  return std::any_of(intent.variants().begin(), intent.variants().end(),
                     [&known](const auto& variant) { return !HasVariant(known, variant); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Interner>> Interner::Open(const Database* database,
                                                         const RocksStoreOptions& options) {
  std::unique_ptr<Interner> interner(new Interner(database, options));
  if (absl::Status status = interner->Load(); !status.ok()) return status;
  return interner;
}

absl::Status Interner::Load() {
  std::unique_ptr<rocksdb::Iterator> at(database_->db()->NewIterator(
      rocksdb::ReadOptions(), database_->family(Family::kDefinitions)));
  for (int k = 1; k <= kDefinitionKinds; ++k) {
    auto kind = static_cast<DefinitionKind>(k);
    std::string prefix = DefinitionPrefix(kind);
    at->SeekForPrev(PrefixEnd(prefix));
    uint32_t last = 0;
    if (at->Valid() && at->key().starts_with(prefix)) {
      std::string_view rest = FromSlice(at->key()).substr(prefix.size());
      TakeBigEndian32(&rest, &last);
    }
    next_[Slot(kind)] = last + 1;
  }
  std::string prefix = DefinitionPrefix(DefinitionKind::kDevice);
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    std::string_view rest = FromSlice(at->key()).substr(prefix.size());
    uint32_t number = 0;
    stored::Device device;
    if (!TakeBigEndian32(&rest, &number) ||
        !device.ParseFromArray(at->value().data(), static_cast<int>(at->value().size()))) {
      return absl::DataLossError(
          absl::StrCat("store ", database_->path(), ": a device definition is damaged"));
    }
    SetFleetDevice(number, device.fleet_number());
  }
  return FromRocks(at->status(), absl::StrCat("read definitions of store ", database_->path()));
}

absl::StatusOr<uint32_t> Interner::Find(DefinitionKind, const std::string& index_key) const {
  if (auto at = pending_.find(index_key); at != pending_.end()) return at->second;
  if (auto at = found_.find(index_key); at != found_.end()) return at->second;
  std::string value;
  bool found = false;
  if (absl::Status status = database_->Get(Family::kIndex, index_key, &value, &found);
      !status.ok()) {
    return status;
  }
  if (!found) return 0;
  std::string_view rest = value;
  uint32_t number = 0;
  if (!TakeBigEndian32(&rest, &number)) {
    return absl::DataLossError(
        absl::StrCat("store ", database_->path(), ": an index entry is damaged"));
  }
  if (index_key.size() <= kMaxFoundKeyBytes) {
    if (found_.size() >= kMaxFoundEntries) found_.clear();
    found_.emplace(index_key, number);
  }
  return number;
}

uint32_t Interner::Add(DefinitionKind kind, std::string index_key, const std::string& value,
                       rocksdb::WriteBatch* batch) {
  uint32_t number = next_[Slot(kind)]++;
  batch->Put(database_->family(Family::kDefinitions), DefinitionKey(kind, number), value);
  batch->Put(database_->family(Family::kIndex), index_key, Value32(number));
  pending_.emplace(std::move(index_key), number);
  return number;
}

absl::StatusOr<uint32_t> Interner::FindOrAdd(DefinitionKind kind, std::string_view content,
                                             const std::string& value, uint32_t bound,
                                             rocksdb::WriteBatch* batch) {
  std::string key = IndexKey(kind, content);
  absl::StatusOr<uint32_t> known = Find(kind, key);
  if (!known.ok() || *known != 0) return known;
  if (next_[Slot(kind)] > bound) return 0;
  return Add(kind, std::move(key), value, batch);
}

absl::StatusOr<std::shared_ptr<const v1::Intent>> Interner::KnownIntent(uint32_t number) const {
  if (auto at = intents_.find(number); at != intents_.end()) return at->second;
  absl::StatusOr<v1::Intent> intent = Intent(number, nullptr);
  if (!intent.ok()) return intent.status();
  if (intents_.size() >= kMaxCachedIntents && !uncommitted_) intents_.clear();
  auto shared = std::make_shared<const v1::Intent>(*std::move(intent));
  intents_[number] = shared;
  return shared;
}

absl::Status Interner::Collision(const v1::Intent& intent) const {
  ++collisions_;
  return absl::InvalidArgumentError(
      absl::StrCat("intent ", absl::BytesToHexString(intent.intent_id()),
                   " is known with other frames or another modifier: its hash collides, or the "
                   "sender computed it wrongly"));
}

absl::StatusOr<std::shared_ptr<const v1::Intent>> Interner::KnownLike(
    const v1::Intent& intent) const {
  if (intent.intent_id().size() != kIntentIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("an intent id has ", intent.intent_id().size(),
                                                   " bytes instead of ", kIntentIdBytes));
  }
  absl::StatusOr<uint32_t> number =
      Find(DefinitionKind::kIntent, IndexKey(DefinitionKind::kIntent, intent.intent_id()));
  if (!number.ok()) return number.status();
  if (*number == 0) return nullptr;
  absl::StatusOr<std::shared_ptr<const v1::Intent>> known = KnownIntent(*number);
  if (known.ok() && !SameCanonical(**known, intent)) return Collision(intent);
  return known;
}

absl::Status Interner::CheckRoom(uint32_t more_intents) const {
  if (uint64_t{next_[Slot(DefinitionKind::kIntent)]} + more_intents <=
      uint64_t{options_.max_intents} + 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("with these intents the store would hold more than ",
                                                 options_.max_intents, "; it takes no more"));
}

absl::Status Interner::CheckIntents(
    const google::protobuf::Map<uint32_t, v1::Intent>& intents) const {
  absl::flat_hash_map<std::string_view, const v1::Intent*> fresh;
  for (const auto& [number, intent] : intents) {
    absl::StatusOr<std::shared_ptr<const v1::Intent>> known = KnownLike(intent);
    if (!known.ok()) return known.status();
    if (*known != nullptr) continue;
    const auto [like, first] = fresh.emplace(intent.intent_id(), &intent);
    if (!first && !SameCanonical(*like->second, intent)) return Collision(intent);
  }
  return CheckRoom(static_cast<uint32_t>(fresh.size()));
}

absl::StatusOr<uint32_t> Interner::InternIntent(const v1::Intent& intent,
                                                rocksdb::WriteBatch* batch) {
  absl::StatusOr<std::shared_ptr<const v1::Intent>> known = KnownLike(intent);
  if (!known.ok()) return known.status();
  std::string key = IndexKey(DefinitionKind::kIntent, intent.intent_id());
  if (*known == nullptr) {
    if (absl::Status status = CheckRoom(1); !status.ok()) return status;
    auto added = std::make_shared<v1::Intent>(intent);
    added->clear_variants();
    MergeVariants(intent, options_.max_variants_per_intent, added.get());
    const uint32_t number =
        Add(DefinitionKind::kIntent, std::move(key), added->SerializeAsString(), batch);
    intents_[number] = std::move(added);
    uncommitted_ = true;
    return number;
  }
  absl::StatusOr<uint32_t> number = Find(DefinitionKind::kIntent, key);
  if (!number.ok()) return number;
  if (LacksVariant(**known, intent, options_.max_variants_per_intent)) {
    auto merged = std::make_shared<v1::Intent>(**known);
    MergeVariants(intent, options_.max_variants_per_intent, merged.get());
    batch->Put(database_->family(Family::kDefinitions),
               DefinitionKey(DefinitionKind::kIntent, *number), merged->SerializeAsString());
    intents_[*number] = std::move(merged);
    uncommitted_ = true;
  }
  return number;
}

absl::StatusOr<uint32_t> Interner::InternActor(const v1::Actor& actor, rocksdb::WriteBatch* batch) {
  v1::Actor content = actor;
  if (!content.cgroup().empty()) content.clear_cgroup_id();
  std::string bytes = content.SerializeAsString();
  absl::StatusOr<uint32_t> number =
      FindOrAdd(DefinitionKind::kActor, bytes, bytes, options_.max_actors, batch);
  if (!number.ok() || *number != 0) return number;
  ++folded_;
  return OtherActor(batch);
}

absl::StatusOr<uint32_t> Interner::OtherActor(rocksdb::WriteBatch* batch) {
  v1::Actor other;
  other.set_comm(kOther);
  std::string bytes = other.SerializeAsString();
  return FindOrAdd(DefinitionKind::kActor, bytes, bytes, UINT32_MAX, batch);
}

absl::StatusOr<uint32_t> Interner::InternDevice(const v1::Device& device,
                                                rocksdb::WriteBatch* batch) {
  v1::Device twin;
  twin.set_name(device.name());
  twin.set_disk(device.disk());
  twin.set_top(device.top());
  twin.set_stacked(device.stacked());
  auto intern = [&](const v1::Device& d, uint32_t fleet_number,
                    uint32_t bound) -> absl::StatusOr<uint32_t> {
    std::string content = d.SerializeAsString();
    std::string key = IndexKey(DefinitionKind::kDevice, content);
    absl::StatusOr<uint32_t> known = Find(DefinitionKind::kDevice, key);
    if (!known.ok() || *known != 0) return known;
    uint32_t next = next_[Slot(DefinitionKind::kDevice)];
    if (next > bound) return 0;
    stored::Device value;
    *value.mutable_device() = d;
    value.set_fleet_number(fleet_number == 0 ? next : fleet_number);
    uint32_t number =
        Add(DefinitionKind::kDevice, std::move(key), value.SerializeAsString(), batch);
    SetFleetDevice(number, value.fleet_number());
    return number;
  };
  absl::StatusOr<uint32_t> fleet_number = intern(twin, 0, options_.max_devices);
  if (!fleet_number.ok()) return fleet_number;
  absl::StatusOr<uint32_t> number = 0;
  if (*fleet_number != 0) number = intern(device, *fleet_number, options_.max_devices);
  if (!number.ok() || *number != 0) return number;
  ++folded_;
  v1::Device other;
  other.set_name(kOther);
  return intern(other, 0, UINT32_MAX);
}

absl::StatusOr<uint32_t> Interner::InternFile(const v1::File& file, rocksdb::WriteBatch* batch) {
  std::string bytes = file.SerializeAsString();
  absl::StatusOr<uint32_t> number =
      FindOrAdd(DefinitionKind::kFile, bytes, bytes, options_.max_files, batch);
  if (!number.ok() || *number != 0) return number;
  ++folded_;
  v1::File other;
  other.set_path(kOther);
  bytes = other.SerializeAsString();
  return FindOrAdd(DefinitionKind::kFile, bytes, bytes, UINT32_MAX, batch);
}

void Interner::Commit() {
  pending_.clear();
  uncommitted_ = false;
}

void Interner::Abandon() {
  pending_.clear();
  intents_.clear();  // may hold what was not written
  uncommitted_ = false;
}

void Interner::SetFleetDevice(uint32_t device, uint32_t twin) {
  absl::MutexLock lock(&devices_mutex_);
  if (fleet_devices_.size() <= device) fleet_devices_.resize(device + 1);
  fleet_devices_[device] = twin;
}

uint32_t Interner::FleetDevice(uint32_t device) const {
  absl::ReaderMutexLock lock(&devices_mutex_);
  return device < fleet_devices_.size() ? fleet_devices_[device] : 0;
}

template <typename T>
absl::StatusOr<T> Interner::Fetch(DefinitionKind kind, uint32_t number, const char* what,
                                  const rocksdb::Snapshot* snapshot) const {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot;
  rocksdb::PinnableSlice value;
  rocksdb::Status status = database_->db()->Get(options, database_->family(Family::kDefinitions),
                                                DefinitionKey(kind, number), &value);
  if (status.IsNotFound())
    return absl::NotFoundError(absl::StrCat("no ", what, " number ", number));
  if (!status.ok()) return FromRocks(status, absl::StrCat("read ", what, " ", number));
  T out;
  if (!out.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::DataLossError(absl::StrCat("stored ", what, " ", number, " is damaged"));
  }
  return out;
}

absl::StatusOr<v1::Intent> Interner::Intent(uint32_t number,
                                            const rocksdb::Snapshot* snapshot) const {
  return Fetch<v1::Intent>(DefinitionKind::kIntent, number, "intent", snapshot);
}
absl::StatusOr<v1::Actor> Interner::Actor(uint32_t number,
                                          const rocksdb::Snapshot* snapshot) const {
  return Fetch<v1::Actor>(DefinitionKind::kActor, number, "actor", snapshot);
}
absl::StatusOr<v1::Device> Interner::Device(uint32_t number,
                                            const rocksdb::Snapshot* snapshot) const {
  absl::StatusOr<stored::Device> device =
      Fetch<stored::Device>(DefinitionKind::kDevice, number, "device", snapshot);
  if (!device.ok()) return device.status();
  return std::move(*device->mutable_device());
}
absl::StatusOr<v1::File> Interner::File(uint32_t number, const rocksdb::Snapshot* snapshot) const {
  return Fetch<v1::File>(DefinitionKind::kFile, number, "file", snapshot);
}

uint32_t Interner::count(DefinitionKind kind) const { return next_[Slot(kind)] - 1; }

}  // namespace fleetblame::aggregator
