// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/testing/faulty_files.h"

#include <errno.h>

#include <utility>

namespace fleetblame::agent {
namespace {

class FaultyFile final : public AppendFile {
 public:
  FaultyFile(FaultyFiles* files, std::unique_ptr<AppendFile> file)
      : files_(files), file_(std::move(file)) {}

  absl::Status Append(std::string_view data) override {
    ++files_->appends;
    if (files_->fail_append_in != FaultyFiles::kNoLimit && files_->fail_append_in-- == 0) {
      files_->fail_append_in = FaultyFiles::kNoLimit;
      file_->Append(data.substr(0, data.size() / 2)).IgnoreError();
      return absl::ErrnoToStatus(EIO, "write");
    }
    if (data.size() > files_->room) {
      file_->Append(data.substr(0, files_->room)).IgnoreError();
      files_->room = 0;
      return absl::ErrnoToStatus(ENOSPC, "write");
    }
    if (files_->room != FaultyFiles::kNoLimit) files_->room -= data.size();
    return file_->Append(data);
  }
  absl::Status Sync() override {
    return files_->fail_sync ? absl::ErrnoToStatus(EIO, "fdatasync") : file_->Sync();
  }
  absl::Status Truncate(uint64_t size) override {
    return files_->fail_truncate ? absl::ErrnoToStatus(EIO, "truncate") : file_->Truncate(size);
  }
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t length) const override {
    return file_->Read(offset, length);
  }
  uint64_t size() const override { return file_->size(); }

 private:
  FaultyFiles* const files_;
  const std::unique_ptr<AppendFile> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AppendFile>> FaultyFiles::Open(const std::string& path) {
  auto file = PosixFileLayer().Open(path);
  if (!file.ok()) return file.status();
  return std::make_unique<FaultyFile>(this, *std::move(file));
}

absl::Status FaultyFiles::Rename(const std::string& from, const std::string& to) {
  return fail_rename ? absl::ErrnoToStatus(EIO, "rename") : PosixFileLayer().Rename(from, to);
}

}  // namespace fleetblame::agent
