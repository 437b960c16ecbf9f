// SPDX-License-Identifier: Apache-2.0
//
// Small numbers for the texts that rows are grouped by. Many actors share a comm and every host has
// an "sda": rows are grouped by what people read, so each store number is mapped to the number of
// its text, and the text is looked at again only for what is returned. One object a query.
//
// Number 0 is the empty text: unknown or none. A definition that the store does not have counts as
// unknown; `missing()` says how many there were.
//
// Files: those with a full path are one file wherever the path is the same. A path that was cut
// ("…/x") or not learned says too little for that; such files stay apart.
//
// Threading: any thread.
#ifndef AGGREGATOR_QUERY_NAMES_H_
#define AGGREGATOR_QUERY_NAMES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/query/definition_cache.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

using NameId = uint32_t;

class Names {
 public:
  // Both must outlive this.
  Names(const ReadView* view, DefinitionCache* cache) : view_(view), cache_(cache) {}

  NameId Intern(std::string_view text);
  // Valid as long as this object.
  const std::string& Text(NameId id) const;

  NameId Comm(ActorNumber actor);
  NameId Cgroup(ActorNumber actor);
  // Of the whole disk / of the partition, or of the disk when none is known / of the top-most
  // device that the IO came through.
  NameId DeviceName(DeviceNumber device);
  NameId PartitionName(DeviceNumber device);
  NameId TopDeviceName(DeviceNumber device);
  // nullptr for 0 and for what the store does not have.
  std::shared_ptr<const v1::Device> Device(DeviceNumber device);
  // What all devices seen so far under this name have in common.
  v1::Device DeviceOf(NameId name) const;
  NameId Modifier(IntentNumber intent);
  std::string Path(FileNumber file);

  // Groups of files have numbers of their own.
  NameId FileGroup(FileNumber file);
  // The path of a group, and of what is known of a file only what holds for all of its files.
  v1::File FileOf(NameId group) const;

  // nullptr for 0 and for what the store does not have.
  std::shared_ptr<const v1::Intent> Intent(IntentNumber intent);

  uint64_t missing() const;

 private:
  std::shared_ptr<const v1::Actor> Actor(ActorNumber actor);
  std::shared_ptr<const v1::File> File(FileNumber file);
  void CountMissing();

  struct Files {
    v1::File first;
    FileNumber number = 0;
    bool several = false;
  };

  NameId NoteDevice(std::string_view name, const v1::Device& device);

  const ReadView* const view_;
  DefinitionCache* const cache_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, NameId> ids_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> texts_ ABSL_GUARDED_BY(mutex_) = {""};
  absl::flat_hash_map<std::string, NameId> file_ids_ ABSL_GUARDED_BY(mutex_);
  std::deque<Files> files_ ABSL_GUARDED_BY(mutex_) = {Files()};
  absl::flat_hash_map<NameId, v1::Device> devices_ ABSL_GUARDED_BY(mutex_);
  uint64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_NAMES_H_
