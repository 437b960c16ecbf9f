// SPDX-License-Identifier: Apache-2.0
//
// The few file operations that the agent's durable state needs, behind an interface, so that tests
// can inject full disks, IO errors and torn writes at every single call.
//
// Threading: an AppendFile belongs to one thread at a time; a FileLayer may be shared.
// Errors carry the path and what the system said ("write /x/y: No space left on device").
#ifndef NODE_AGENT_SPOOL_FILE_LAYER_H_
#define NODE_AGENT_SPOOL_FILE_LAYER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fleetblame::agent {

// A file that grows at its end and is read anywhere. Closed by the destructor.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  // Writes everything or returns an error; after an error the file may hold a part of `data`.
  virtual absl::Status Append(std::string_view data) = 0;
  // Makes the contents survive a power cut.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Truncate(uint64_t size) = 0;
  // OUT_OF_RANGE when the file ends before `offset + length`.
  virtual absl::StatusOr<std::string> Read(uint64_t offset, uint64_t length) const = 0;
  virtual uint64_t size() const = 0;
};

class FileLayer {
 public:
  virtual ~FileLayer() = default;
  // Opens for reading and appending; created when missing.
  virtual absl::StatusOr<std::unique_ptr<AppendFile>> Open(const std::string& path) = 0;
  // Names (no paths) of the regular files in `directory`, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::Status CreateDirectories(const std::string& directory) = 0;
  // Atomic; replaces `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // Makes names that were created, renamed or removed in it survive a power cut.
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;
};

// The real one. Lives as long as the process.
FileLayer& PosixFileLayer();

// Whole small files, by way of a layer. WriteFileAtomically writes `path`.tmp, syncs and renames.
absl::StatusOr<std::string> ReadWholeFile(FileLayer& files, const std::string& path);
absl::Status WriteFileAtomically(FileLayer& files, const std::string& path, std::string_view data);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_FILE_LAYER_H_
