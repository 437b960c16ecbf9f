// SPDX-License-Identifier: Apache-2.0
//
// What the tracer's small ids mean: stacks (through the symbolizer and the identity rules), actors
// and files, as dictionary numbers.
//
// Threading: the thread that calls Tracer::Collect. Bounded: the tracer bounds how many stacks and
// actors it hands out; of files the newest kMaxFiles are kept, older ones become "no file".
#ifndef NODE_AGENT_COMPACT_LOCAL_NAMES_H_
#define NODE_AGENT_COMPACT_LOCAL_NAMES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "node-agent/dictionary/dictionary.h"
#include "node-agent/symbols/stack_symbols.h"
#include "node-agent/tracer/tracer.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::agent {

class LocalNames {
 public:
  static constexpr size_t kMaxFiles = 65536;

  // Both must outlive this object.
  LocalNames(Tracer* tracer, Dictionary* dictionary);

  // Takes in the definitions of a snapshot. The status tells whether symbols could be read; all
  // else works without them.
  absl::Status Define(const Snapshot& snapshot);

  // Numbers in the dictionary's current dictionary; 0 when the id means "none" or is not known.
  uint32_t Intent(StackId stack, uint8_t reason);
  uint32_t Actor(ActorId actor);
  // `partition` and `top` as in RowKey.
  uint32_t Device(DeviceNumber device, uint8_t partition = 0, DeviceNumber top = {});
  uint32_t File(const v1::File& file) { return dictionary_->Number(file); }

  // nullptr when not known.
  std::shared_ptr<const v1::File> FindFile(FileId id) const;
  const v1::Actor* FindActor(ActorId id) const;
  // Name of a device as the tracer numbers it.
  const std::string& DeviceName(DeviceNumber device);
  // Name of a wb_reason; empty for 0 and unknown ones.
  std::string_view Reason(uint8_t reason) const;

  // Ids that rows referred to although nothing had defined them.
  uint64_t unknown_ids() const { return unknown_ids_; }
  // One sentence when symbols are hidden; empty otherwise.
  const std::string& limitation() const { return symbols_.limitation(); }

 private:
  struct KnownDevice {
    v1::Device device;
    uint32_t number = 0;
    absl::Time read;
  };
  struct DeviceKey {
    DeviceNumber device;
    uint8_t partition = 0;
    DeviceNumber top;
    auto operator<=>(const DeviceKey&) const = default;
  };
  struct KnownActor {
    v1::Actor actor;
    uint32_t number = 0;
  };
  void ForgetNumbersOfOldDictionary();
  KnownDevice& FindDevice(const DeviceKey& key);
  v1::Device LookAtDevice(const DeviceKey& key) const;

  Tracer* const tracer_;
  Dictionary* const dictionary_;
  const bool replayed_;
  StackSymbols symbols_;
  uint64_t dictionary_id_ = 0;
  absl::flat_hash_map<std::pair<StackId, uint8_t>, uint32_t> intents_;
  absl::flat_hash_map<ActorId, KnownActor> actors_;
  std::map<DeviceKey, KnownDevice> devices_;
  absl::flat_hash_map<FileId, std::shared_ptr<const v1::File>> files_;
  std::deque<FileId> file_order_;
  uint64_t unknown_ids_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_COMPACT_LOCAL_NAMES_H_
