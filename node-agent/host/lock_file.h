// SPDX-License-Identifier: Apache-2.0
//
// One agent at a time: an flock(2) on a file that holds the owner's process id. The kernel drops
// the lock with the process, however that ends.
//
// Threading: any; release by destruction.
#ifndef NODE_AGENT_HOST_LOCK_FILE_H_
#define NODE_AGENT_HOST_LOCK_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace fleetblame::agent {

class LockFile {
 public:
  // ALREADY_EXISTS when another process holds it; the sentence names that process. `what` says what
  // the lock is for ("this host", "/var/lib/x"). Missing directories are made.
  static absl::StatusOr<std::unique_ptr<LockFile>> Take(const std::string& path,
                                                        const std::string& what);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_HOST_LOCK_FILE_H_
