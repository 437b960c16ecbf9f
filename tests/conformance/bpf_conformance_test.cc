// SPDX-License-Identifier: Apache-2.0
//
// The tracer contract on the bpf tracer and the running kernel: each test has a loop device with
// ext4 of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/conformance/subject.h"
#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {
namespace {

constexpr size_t kFileBytes = size_t{1} << 20;
constexpr size_t kBlockBytes = 4096;

class BpfSubject : public Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Make() {
    if (std::string reason = ScratchDisksUnavailable(); !reason.empty()) {
      return absl::UnavailableError(reason);
    }
    std::unique_ptr<BpfSubject> subject(new BpfSubject());
    auto disk = LoopDisk::Create(DiskBytesFor(FilesystemKind::kExt4));
    if (!disk.ok()) return disk.status();
    subject->disk_ = *std::move(disk);
    auto filesystem = ScratchFilesystem::Create(FilesystemKind::kExt4, subject->disk_.get());
    if (!filesystem.ok()) return filesystem.status();
    subject->filesystem_ = *std::move(filesystem);
    absl::Status rest = subject->filesystem_->Remount();
    if (!rest.ok()) return rest;
    return subject;
  }

  absl::StatusOr<std::unique_ptr<agent::Tracer>> Create() override {
    agent::BpfTracerOptions options;
    options.devices.patterns = {disk_->name()};
    return agent::CreateBpfTracer(options);
  }

  // Buffered writes, a shared mapping, direct IO both ways, and a journal commit.
  absl::Status Work() override {
    const std::string path = absl::StrCat(filesystem_->mount_point(), "/work", ++works_);
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
    absl::Cleanup close_fd = [fd] { close(fd); };
    const std::string data(kFileBytes, 'x');
    if (pwrite(fd, data.data(), data.size(), 0) != static_cast<ssize_t>(data.size())) {
      return absl::ErrnoToStatus(errno, absl::StrCat("write ", path));
    }
    void* map = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("mmap ", path));
    std::memset(static_cast<char*>(map) + kFileBytes / 2, 'y', kBlockBytes);
    munmap(map, kFileBytes);
    if (fsync(fd) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("fsync ", path));
    absl::Status direct = DirectIo(path);
    if (!direct.ok()) return direct;
    sync();
    return disk_->WaitForRest(absl::Milliseconds(100));
  }

  std::string Counted() const override {
    auto now = disk_->Counters();
    if (!now.ok()) return now.status().ToString();
    return absl::StrCat(now->read_ios, " ", now->read_bytes, " ", now->write_ios, " ",
                        now->write_bytes, " ", now->discard_bytes, " ", now->in_flight);
  }

  std::string device() const override { return disk_->name(); }
  bool live() const override { return true; }
  bool traces_every_io() const override { return true; }

 private:
  BpfSubject() = default;

  static absl::Status DirectIo(const std::string& path) {
    int fd = open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open directly ", path));
    absl::Cleanup close_fd = [fd] { close(fd); };
    std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kBlockBytes, kBlockBytes),
                                                      &std::free);
    for (off_t at = 0; at < static_cast<off_t>(16 * kBlockBytes); at += kBlockBytes) {
      if (pread(fd, block.get(), kBlockBytes, at) != static_cast<ssize_t>(kBlockBytes) ||
          pwrite(fd, block.get(), kBlockBytes, at) != static_cast<ssize_t>(kBlockBytes)) {
        return absl::ErrnoToStatus(errno, absl::StrCat("direct IO on ", path));
      }
    }
    return absl::OkStatus();
  }

  // The filesystem goes before its disk.
  std::unique_ptr<LoopDisk> disk_;
  std::unique_ptr<ScratchFilesystem> filesystem_;
  int works_ = 0;
};

}  // namespace

std::vector<SubjectSpec> Subjects() { return {{"Bpf", &BpfSubject::Make}}; }

}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Without the means for scratch disks the tests skip themselves and say why.
  if (fleetblame::testing::ScratchDisksUnavailable().empty()) {
    if (absl::Status status = fleetblame::testing::EnterPrivateMounts(); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return RUN_ALL_TESTS();
}
