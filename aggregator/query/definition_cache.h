// SPDX-License-Identifier: Apache-2.0
//
// Definitions by the store's number, kept over queries: grouping by comm or filtering by cgroup
// looks at every actor in the range, and reading each from the store again would cost more than the
// scan. Definitions never change, so nothing here grows stale. Intents are kept without their
// variants.
//
// Memory is bounded: when the young half of a cache is full it becomes the old half, and what the
// old half held is forgotten unless it was asked for meanwhile.
//
// Threading: any thread. Errors: those of the view (NOT_FOUND for unknown numbers).
#ifndef AGGREGATOR_QUERY_DEFINITION_CACHE_H_
#define AGGREGATOR_QUERY_DEFINITION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

template <typename T>
class GenerationCache {
 public:
  explicit GenerationCache(size_t max_entries) : half_(max_entries / 2 + 1) {}

  // The cached value, or what `load()` returns (a StatusOr<T>), cached when OK.
  template <typename Load>
  absl::StatusOr<std::shared_ptr<const T>> Get(uint32_t number, Load load) {
    {
      absl::MutexLock lock(&mutex_);
      if (auto at = young_.find(number); at != young_.end()) return at->second;
      if (auto at = old_.find(number); at != old_.end()) return Keep(number, at->second);
    }
    absl::StatusOr<T> loaded = load();
    if (!loaded.ok()) return loaded.status();
    auto value = std::make_shared<const T>(*std::move(loaded));
    absl::MutexLock lock(&mutex_);
    return Keep(number, std::move(value));
  }

  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return young_.size() + old_.size();
  }

 private:
  using Map = absl::flat_hash_map<uint32_t, std::shared_ptr<const T>>;

  std::shared_ptr<const T> Keep(uint32_t number, std::shared_ptr<const T> value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (young_.size() >= half_) {
      old_ = std::move(young_);
      young_ = Map();
    }
    return young_.try_emplace(number, std::move(value)).first->second;
  }

  const size_t half_;
  mutable absl::Mutex mutex_;
  Map young_ ABSL_GUARDED_BY(mutex_);
  Map old_ ABSL_GUARDED_BY(mutex_);
};

class DefinitionCache {
 public:
  DefinitionCache();

  absl::StatusOr<std::shared_ptr<const v1::Intent>> Intent(const ReadView& view, IntentNumber n);
  absl::StatusOr<std::shared_ptr<const v1::Actor>> Actor(const ReadView& view, ActorNumber n);
  absl::StatusOr<std::shared_ptr<const v1::Device>> Device(const ReadView& view, DeviceNumber n);
  absl::StatusOr<std::shared_ptr<const v1::File>> File(const ReadView& view, FileNumber n);

 private:
  GenerationCache<v1::Intent> intents_;
  GenerationCache<v1::Actor> actors_;
  GenerationCache<v1::Device> devices_;
  GenerationCache<v1::File> files_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_DEFINITION_CACHE_H_
