// SPDX-License-Identifier: Apache-2.0
//
// One number for each distinct definition in the fleet. Definitions are found by their content (for
// intents by their id, and then the content is compared), so equal definitions of ten thousand
// hosts are stored once.
//
//   actors   the kernfs id of the cgroup is dropped when its path is known: it differs from host to
//            host for the same thing, and nothing could be compared over hosts
//   devices  each has a twin that keeps only the name, for rows summed over hosts
//   bounds   beyond its bound an actor, device or file becomes the entry "…/other" of its kind
//
// Threading: interning belongs to one thread at a time (the store's append lock); reads may come
// from any thread.
#ifndef AGGREGATOR_STORE_INTERNER_H_
#define AGGREGATOR_STORE_INTERNER_H_

#include <rocksdb/snapshot.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/store/database.h"
#include "aggregator/store/keys.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

class Interner {
 public:
  static absl::StatusOr<std::unique_ptr<Interner>> Open(const Database* database,
                                                        const RocksStoreOptions& options);

  // Number of the definition; what is new is added to `batch`. After the batch was written call
  // Commit, or Abandon when it was not. INVALID_ARGUMENT when it can never be taken (an id that
  // collides, one that is not 16 bytes long).
  absl::StatusOr<uint32_t> InternIntent(const v1::Intent& intent, rocksdb::WriteBatch* batch);
  absl::StatusOr<uint32_t> InternActor(const v1::Actor& actor, rocksdb::WriteBatch* batch);
  absl::StatusOr<uint32_t> InternDevice(const v1::Device& device, rocksdb::WriteBatch* batch);
  absl::StatusOr<uint32_t> InternFile(const v1::File& file, rocksdb::WriteBatch* batch);
  // Whether all intents of a batch can be interned, beside each other too. One that is refused after
  // others were taken would leave these behind.
  absl::Status CheckIntents(const google::protobuf::Map<uint32_t, v1::Intent>& intents) const;
  // The entry "…/other" of actors.
  absl::StatusOr<uint32_t> OtherActor(rocksdb::WriteBatch* batch);
  void Commit();
  void Abandon();

  // The device that stands for all of this name; 0 for 0.
  uint32_t FleetDevice(uint32_t device) const;

  // NOT_FOUND for unknown numbers. `snapshot` may be null.
  absl::StatusOr<v1::Intent> Intent(uint32_t number, const rocksdb::Snapshot* snapshot) const;
  absl::StatusOr<v1::Actor> Actor(uint32_t number, const rocksdb::Snapshot* snapshot) const;
  absl::StatusOr<v1::Device> Device(uint32_t number, const rocksdb::Snapshot* snapshot) const;
  absl::StatusOr<v1::File> File(uint32_t number, const rocksdb::Snapshot* snapshot) const;

  uint32_t count(DefinitionKind kind) const;  // interned so far
  uint64_t collisions() const { return collisions_.load(); }
  uint64_t folded() const { return folded_.load(); }  // definitions that became "…/other"

 private:
  Interner(const Database* database, const RocksStoreOptions& options)
      : database_(database), options_(options) {}

  absl::Status Load();
  absl::StatusOr<uint32_t> Find(DefinitionKind kind, const std::string& index_key) const;
  uint32_t Add(DefinitionKind kind, std::string index_key, const std::string& value,
               rocksdb::WriteBatch* batch);
  // Find, or add within the bound; 0 when the bound is reached.
  absl::StatusOr<uint32_t> FindOrAdd(DefinitionKind kind, std::string_view content,
                                     const std::string& value, uint32_t bound,
                                     rocksdb::WriteBatch* batch);
  absl::StatusOr<std::shared_ptr<const v1::Intent>> KnownIntent(uint32_t number) const;
  absl::Status Collision(const v1::Intent& intent) const;
  // What is known under the id of an intent; null if nothing is.
  absl::StatusOr<std::shared_ptr<const v1::Intent>> KnownLike(const v1::Intent& intent) const;
  absl::Status CheckRoom(uint32_t more_intents) const;
  template <typename T>
  absl::StatusOr<T> Fetch(DefinitionKind kind, uint32_t number, const char* what,
                          const rocksdb::Snapshot* snapshot) const;
  void SetFleetDevice(uint32_t device, uint32_t twin);

  const Database* const database_;
  const RocksStoreOptions options_;
  std::array<std::atomic<uint32_t>, kDefinitionKinds + 1> next_{};
  // Not written yet; numbers are used up even when the write fails, since part of a failed write
  // may come back from the log.
  absl::flat_hash_map<std::string, uint32_t> pending_;
  // Found before; emptied when full.
  mutable absl::flat_hash_map<std::string, uint32_t> found_;
  mutable absl::flat_hash_map<uint32_t, std::shared_ptr<const v1::Intent>> intents_;
  bool uncommitted_ = false;  // intents_ holds what is not in the database yet
  mutable absl::Mutex devices_mutex_;
  std::vector<uint32_t> fleet_devices_ ABSL_GUARDED_BY(devices_mutex_);
  mutable std::atomic<uint64_t> collisions_{0};
  std::atomic<uint64_t> folded_{0};
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_INTERNER_H_
