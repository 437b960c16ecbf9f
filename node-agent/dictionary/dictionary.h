// SPDX-License-Identifier: Apache-2.0
//
// Numbers for intents, actors, devices and files, and the memory of what they mean for as long as a
// spooled batch uses them.
//
// A dictionary is named by a random dictionary_id, begun at each start of the agent and again when
// it has grown beyond its limits, so neither memory nor disk grow with the agent's age. Older ones
// stay readable, for batches of an earlier run, until the spool no longer holds any of theirs.
//
// A definition is attached to every batch that refers to it until the aggregator acknowledged one
// that carried it. What is acknowledged counts for one dictionary epoch of the aggregator only.
//
// Threading: all methods may be called from any thread.
#ifndef NODE_AGENT_DICTIONARY_DICTIONARY_H_
#define NODE_AGENT_DICTIONARY_DICTIONARY_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "node-agent/dictionary/definition_file.h"
#include "node-agent/spool/file_layer.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::agent {

// Numbers of one dictionary that something refers to; sorted, unique, without 0.
struct DictionaryRefs {
  uint64_t dictionary_id = 0;
  std::array<std::vector<uint32_t>, kDefinitionKinds> numbers;
};

struct DictionaryOptions {
  std::string directory;
  bool sync = true;
  // When one kind has more numbers than this, NewDictionary is due.
  uint32_t max_intents = 16384;
  uint32_t max_others = 65536;
  FileLayer* files = nullptr;  // nullptr = PosixFileLayer()
};

class Dictionary {
 public:
  static absl::StatusOr<std::unique_ptr<Dictionary>> Open(DictionaryOptions options);

  uint64_t current_id() const;
  bool full() const;
  // Begins a new dictionary: numbers given before are not valid in it.
  void NewDictionary();

  // The number of a definition in the current dictionary; the same one each time.
  uint32_t Number(const v1::Intent& intent);
  uint32_t Number(const v1::Actor& actor);
  uint32_t Number(const v1::Device& device);
  uint32_t Number(const v1::File& file);

  // Writes new definitions to disk; to be called before a batch that uses them is spooled. When it
  // fails they stay in memory and the next call tries again.
  absl::Status Persist();

  // nullopt when the number has no definition.
  std::optional<v1::Intent> Intent(uint64_t dictionary_id, uint32_t number) const;

  // ---- towards the aggregator
  // Tells which epoch acknowledgements belong to; another one than before forgets them all.
  void SetEpoch(uint64_t dictionary_epoch);
  // Definitions of `refs`, without those that are acknowledged unless `all`. A number whose
  // definition was lost is defined as unknown, since a batch without it would never be taken.
  v1::Definitions Define(const DictionaryRefs& refs, bool all) ABSL_LOCKS_EXCLUDED(mutex_);
  void Acknowledge(const DictionaryRefs& refs);

  // Forgets dictionaries other than the current one and those in `in_use`.
  void Retain(const std::set<uint64_t>& in_use);

  struct Stats {
    std::array<uint32_t, kDefinitionKinds> numbers = {};
    size_t dictionaries = 0;
    uint64_t lost_definitions = 0;
    uint64_t write_errors = 0;
  };
  Stats stats() const;

 private:
  explicit Dictionary(DictionaryOptions options);
  uint32_t NumberOf(DefinitionKind kind, absl::uint128 identity, std::string serialized)
      ABSL_LOCKS_EXCLUDED(mutex_);
  DefinitionFile* Find(uint64_t dictionary_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DictionaryOptions options_;
  FileLayer& files_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<DefinitionFile>> dictionaries_ ABSL_GUARDED_BY(mutex_);
  DefinitionFile* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::array<absl::flat_hash_map<absl::uint128, uint32_t>, kDefinitionKinds> known_
      ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lost_definitions_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t write_errors_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_DICTIONARY_DICTIONARY_H_
