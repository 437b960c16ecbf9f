// SPDX-License-Identifier: Apache-2.0
//
// A FileLayer over the real one that fails as disks do: full after so many bytes, an error at the
// n-th call, half a write before the error.
//
// Threading: one thread.
#ifndef NODE_AGENT_SPOOL_TESTING_FAULTY_FILES_H_
#define NODE_AGENT_SPOOL_TESTING_FAULTY_FILES_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "node-agent/spool/file_layer.h"

namespace fleetblame::agent {

class FaultyFiles final : public FileLayer {
 public:
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  // Bytes that may still be written before the disk is full.
  uint64_t room = kNoLimit;
  // The write of that many calls from now fails with EIO after half of it was done.
  uint64_t fail_append_in = kNoLimit;
  bool fail_sync = false;
  bool fail_truncate = false;
  bool fail_rename = false;
  uint64_t appends = 0;

  absl::StatusOr<std::unique_ptr<AppendFile>> Open(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return PosixFileLayer().List(directory);
  }
  absl::Status CreateDirectories(const std::string& directory) override {
    return PosixFileLayer().CreateDirectories(directory);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override { return PosixFileLayer().Remove(path); }
  absl::Status SyncDirectory(const std::string& directory) override {
    return PosixFileLayer().SyncDirectory(directory);
  }
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_TESTING_FAULTY_FILES_H_
