// SPDX-License-Identifier: Apache-2.0
#include "node-agent/host/lock_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::agent {

absl::StatusOr<std::unique_ptr<LockFile>> LockFile::Take(const std::string& path,
                                                         const std::string& what) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  // Empty for a name without a directory: one in the working directory.
  if (!directory.empty()) std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("create the directory of ", path));
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open lock file ", path));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int failed = errno;
    std::array<char, 32> text = {};
    const ssize_t length = ::pread(fd, text.data(), text.size() - 1, 0);
    ::close(fd);
    if (failed != EWOULDBLOCK) {
      return absl::ErrnoToStatus(failed, absl::StrCat("lock ", path));
    }
    std::string owner = length > 0 ? text.data() : "";
    absl::StripAsciiWhitespace(&owner);
    return absl::AlreadyExistsError(
        absl::StrCat("another agent already runs on ", what,
                     owner.empty() ? "" : absl::StrCat(" as process ", owner), " (lock file ", path,
                     "); stop it first"));
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  // Only for people; the lock does not depend on it.
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // A full disk leaves the file empty.
  }
  return std::unique_ptr<LockFile>(new LockFile(fd));
}

LockFile::~LockFile() { ::close(fd_); }

}  // namespace fleetblame::agent
