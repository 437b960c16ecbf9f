// SPDX-License-Identifier: Apache-2.0
//
// What the numbers in an agent's batches mean: (host, dictionary_id, agent's number) to the store's
// number. Durable, because an agent stops sending definitions once they were acknowledged. The
// cache holds what hosts in the stream of batches use; it is bounded, the least recently used
// dictionary goes first.
//
// Threading: belongs to one thread at a time (the store's append lock).
#ifndef AGGREGATOR_STORE_DICTIONARIES_H_
#define AGGREGATOR_STORE_DICTIONARIES_H_

#include <rocksdb/write_batch.h>

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/store/database.h"
#include "aggregator/store/keys.h"

namespace fleetblame::aggregator {

class Dictionaries {
 public:
  struct Scope {
    HostNumber host = 0;
    uint64_t dictionary_id = 0;
    bool operator==(const Scope&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Scope& s) {
      return H::combine(std::move(h), s.host, s.dictionary_id);
    }
  };

  Dictionaries(const Database* database, size_t max_cached_entries)
      : database_(database), max_cached_entries_(max_cached_entries) {}

  // The store's number, or 0 when the agent's is not defined.
  absl::StatusOr<uint32_t> Find(const Scope& scope, DefinitionKind kind, uint32_t agent_number);
  // Adds a meaning to `batch`. After the batch was written call Commit, otherwise Abandon.
  void Define(const Scope& scope, DefinitionKind kind, uint32_t agent_number, uint32_t number,
              rocksdb::WriteBatch* batch);
  // Notes in `batch` that the dictionary is in use, at most once an hour.
  void Use(const Scope& scope, uint64_t now_unix_ns, rocksdb::WriteBatch* batch);
  void Commit();
  void Abandon();

  // Adds to `batch` the removal of dictionaries that have a successor on their host and that nobody
  // used for `keep_ns`; returns how many.
  absl::StatusOr<int> DropSuperseded(uint64_t now_unix_ns, uint64_t keep_ns,
                                     rocksdb::WriteBatch* batch);

  size_t cached_entries() const { return cached_entries_; }

 private:
  struct Dictionary {
    Scope scope;
    absl::flat_hash_map<uint64_t, uint32_t> numbers;  // kind << 32 | agent's number
    uint64_t noted_unix_ns = 0;
  };
  using Position = std::list<Dictionary>::iterator;

  Dictionary& Touch(const Scope& scope);
  void Trim();

  const Database* const database_;
  const size_t max_cached_entries_;
  size_t cached_entries_ = 0;
  std::list<Dictionary> recent_;  // most recently used first
  absl::flat_hash_map<Scope, Position> positions_;
  std::vector<Scope> changed_;  // since the last Commit
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_DICTIONARIES_H_
