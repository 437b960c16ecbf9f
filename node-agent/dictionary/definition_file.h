// SPDX-License-Identifier: Apache-2.0
//
// One dictionary on disk: what each number of one dictionary_id means. A log of frames (the same
// as in the spool, docs/spool-format.md) that grows by one frame a definition. Memory holds where
// each one is, not what it says, and whether the aggregator is known to have it.
//
// Threading: one thread at a time. A definition that cannot be written stays in memory until it
// can.
#ifndef NODE_AGENT_DICTIONARY_DEFINITION_FILE_H_
#define NODE_AGENT_DICTIONARY_DEFINITION_FILE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/spool/file_layer.h"

namespace fleetblame::agent {

enum class DefinitionKind : uint8_t { kIntent = 0, kActor = 1, kDevice = 2, kFile = 3 };
inline constexpr int kDefinitionKinds = 4;

class DefinitionFile {
 public:
  static std::string Name(uint64_t dictionary_id);
  static bool ParseName(const std::string& name, uint64_t* dictionary_id);

  // A new and empty one. The file is made by the first Persist.
  static std::unique_ptr<DefinitionFile> Create(FileLayer& files, const std::string& directory,
                                                uint64_t dictionary_id);
  // One that an earlier run of the agent left. Damaged definitions are missing afterwards.
  static absl::StatusOr<std::unique_ptr<DefinitionFile>> Load(FileLayer& files,
                                                              const std::string& directory,
                                                              uint64_t dictionary_id);

  // Adds a definition (a serialized Intent, Actor, Device or File) and returns its number.
  uint32_t Add(DefinitionKind kind, std::string serialized);

  // Writes what was added since the last time.
  absl::Status Persist(bool sync);

  // nullopt for a number that is not defined or whose definition was damaged.
  std::optional<std::string> Read(DefinitionKind kind, uint32_t number) const;

  // Whether the aggregator has it, as of the current dictionary epoch.
  bool acknowledged(DefinitionKind kind, uint32_t number) const;
  void Acknowledge(DefinitionKind kind, uint32_t number);
  void ForgetAcknowledgements();

  // How many numbers of a kind were given out.
  uint32_t size(DefinitionKind kind) const;
  uint64_t dictionary_id() const { return dictionary_id_; }
  absl::Status Remove();

 private:
  struct Entry {
    uint64_t offset = 0;  // 0 = not written yet, or damaged
    uint32_t payload_bytes = 0;
    bool acknowledged = false;
  };
  struct Pending {
    DefinitionKind kind;
    uint32_t number;
    std::string serialized;
  };

  DefinitionFile(FileLayer& files, const std::string& directory, uint64_t dictionary_id);
  void Scan(std::string_view bytes);
  const Entry* Find(DefinitionKind kind, uint32_t number) const;

  FileLayer& files_;
  const std::string path_;
  const uint64_t dictionary_id_;
  std::unique_ptr<AppendFile> file_;
  // Number n is at n - 1.
  std::array<std::vector<Entry>, kDefinitionKinds> entries_;
  std::vector<Pending> pending_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_DICTIONARY_DEFINITION_FILE_H_
