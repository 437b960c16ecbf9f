// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/file_layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

absl::Status Failed(const char* what, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

class PosixFile final : public AppendFile {
 public:
  PosixFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PosixFile() override { ::close(fd_); }

  absl::Status Append(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t wrote = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(size_));
      if (wrote < 0) {
        if (errno == EINTR) continue;
        return Failed("write", path_, errno);
      }
      size_ += static_cast<uint64_t>(wrote);
      data.remove_prefix(static_cast<size_t>(wrote));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (::fdatasync(fd_) != 0) return Failed("fdatasync", path_, errno);
    return absl::OkStatus();
  }

  absl::Status Truncate(uint64_t size) override {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return Failed("truncate", path_, errno);
    size_ = size;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t length) const override {
    if (offset > size_ || length > size_ - offset) {
      return absl::OutOfRangeError(absl::StrCat("read ", path_, ": ", length, " bytes at ", offset,
                                                " are beyond its end (", size_, ")"));
    }
    std::string data(length, '\0');
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t got =
          ::pread(fd_, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
      if (got < 0) {
        if (errno == EINTR) continue;
        return Failed("read", path_, errno);
      }
      if (got == 0)
        return absl::OutOfRangeError(absl::StrCat("read ", path_, ": it became shorter"));
      done += static_cast<size_t>(got);
    }
    return data;
  }

  uint64_t size() const override { return size_; }

 private:
  const std::string path_;
  const int fd_;
  uint64_t size_;
};

class PosixLayer final : public FileLayer {
 public:
  absl::StatusOr<std::unique_ptr<AppendFile>> Open(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Failed("open", path, errno);
    struct stat info;
    if (::fstat(fd, &info) != 0) {
      const int error = errno;
      ::close(fd);
      return Failed("stat", path, error);
    }
    return std::make_unique<PosixFile>(path, fd, static_cast<uint64_t>(info.st_size));
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator it(directory, error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
      std::error_code ignored;
      if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
    }
    if (error) return Failed("list", directory, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status CreateDirectories(const std::string& directory) override {
    std::error_code error;
    const bool made = std::filesystem::create_directories(directory, error);
    if (error) return Failed("create directory", directory, error.value());
    // What is spooled names processes and files of every user.
    if (made && ::chmod(directory.c_str(), 0700) != 0) return Failed("chmod", directory, errno);
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return Failed("rename", from, errno);
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("remove", path, errno);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& directory) override {
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return Failed("open", directory, errno);
    const int result = ::fsync(fd);
    const int error = errno;
    ::close(fd);
    if (result != 0) return Failed("fsync", directory, error);
    return absl::OkStatus();
  }
};

}  // namespace

FileLayer& PosixFileLayer() {
  static PosixLayer* const layer = new PosixLayer();
  return *layer;
}

absl::StatusOr<std::string> ReadWholeFile(FileLayer& files, const std::string& path) {
  auto file = files.Open(path);
  if (!file.ok()) return file.status();
  return (*file)->Read(0, (*file)->size());
}

absl::Status WriteFileAtomically(FileLayer& files, const std::string& path, std::string_view data) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  {
    auto file = files.Open(temporary);
    if (!file.ok()) return file.status();
    if (auto status = (*file)->Truncate(0); !status.ok()) return status;
    if (auto status = (*file)->Append(data); !status.ok()) return status;
    if (auto status = (*file)->Sync(); !status.ok()) return status;
  }
  return files.Rename(temporary, path);
}

}  // namespace fleetblame::agent
