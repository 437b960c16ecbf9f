// SPDX-License-Identifier: Apache-2.0
//
// Changes a file below /proc/sys for a while. The old value comes back when the object goes away,
// and also when the process dies without a chance to clean up: a small helper process in a session
// of its own waits for that. A second guard of the same file, in whatever process, waits until the
// first has put the old value back: otherwise it would take the changed value for the old one, and
// leave it behind. UNAVAILABLE when that takes longer than a minute.
//
// Not thread-safe.
#ifndef TESTS_GROUNDTRUTH_SYSCTL_GUARD_H_
#define TESTS_GROUNDTRUTH_SYSCTL_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace fleetblame::testing {

class SysctlGuard {
 public:
  // `path` such as "/proc/sys/vm/dirty_expire_centisecs".
  static absl::StatusOr<std::unique_ptr<SysctlGuard>> Set(const std::string& path,
                                                          const std::string& value);
  ~SysctlGuard();
  SysctlGuard(const SysctlGuard&) = delete;
  SysctlGuard& operator=(const SysctlGuard&) = delete;

 private:
  SysctlGuard(pid_t restorer, int pipe_fd, int lock_fd)
      : restorer_(restorer), pipe_fd_(pipe_fd), lock_fd_(lock_fd) {}

  pid_t restorer_;
  int pipe_fd_;  // its end of file tells the restorer to act
  int lock_fd_;  // shared with the restorer: free when both are done
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_SYSCTL_GUARD_H_
