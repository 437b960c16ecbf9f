// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/scratch_disk.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

constexpr char kBackingDirectory[] = "/dev/shm";
constexpr char kMountPoints[] = "/mnt";
constexpr uint64_t kSectorBytes = 512;  // the unit of /sys/block/*/stat, whatever the device has

bool private_mounts = false;

// Puts `backing` behind a free loop device and returns its number; `fd` gets it open.
absl::StatusOr<int> AttachLoop(int backing, int* fd) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return absl::ErrnoToStatus(errno, "open /dev/loop-control");
  absl::Status failure;
  // Someone else may take the free device between the two calls: ask again.
  for (int attempt = 0; attempt < 20; ++attempt) {
    const int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) {
      failure = absl::ErrnoToStatus(errno, "ask for a free loop device");
      break;
    }
    const std::string path = absl::StrCat("/dev/loop", number);
    *fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (*fd < 0) {
      failure = absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
      continue;
    }
    loop_config config{};
    config.fd = backing;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(*fd, LOOP_CONFIGURE, &config) == 0) {
      close(control);
      return number;
    }
    failure = absl::ErrnoToStatus(errno, absl::StrCat("attach ", path));
    close(*fd);
    absl::SleepFor(absl::Milliseconds(20));
  }
  close(control);
  return failure;
}

std::vector<std::string> MkfsCommand(FilesystemKind kind, const std::string& device) {
  const std::string no_lazy = "lazy_itable_init=0,lazy_journal_init=0";
  switch (kind) {
    case FilesystemKind::kExt4:
    case FilesystemKind::kExt4DataJournal:
      return {"mkfs.ext4", "-q", "-F", "-E", no_lazy, device};
    case FilesystemKind::kExt4NoJournal:
      return {"mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", no_lazy, device};
    case FilesystemKind::kXfs:
      return {"mkfs.xfs", "-q", "-f", device};
    case FilesystemKind::kBtrfs:
      return {"mkfs.btrfs", "-q", "-f", device};
  }
  return {};
}

const char* MountType(FilesystemKind kind) {
  switch (kind) {
    case FilesystemKind::kXfs:
      return "xfs";
    case FilesystemKind::kBtrfs:
      return "btrfs";
    default:
      return "ext4";
  }
}

}  // namespace

std::string ScratchDisksUnavailable() {
  if (geteuid() != 0) return "needs root";
  if (access("/dev/loop-control", R_OK | W_OK) != 0) return "no loop devices (/dev/loop-control)";
  if (access(kBackingDirectory, W_OK) != 0) return "no writable /dev/shm";
  return "";
}

absl::Status EnterPrivateMounts() {
  if (private_mounts) return absl::OkStatus();
  if (unshare(CLONE_NEWNS) != 0) return absl::ErrnoToStatus(errno, "unshare mounts; run as root");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return absl::ErrnoToStatus(errno, "make mounts private");
  }
  // Mount points stand in a file system of our own as well, so that they vanish with it.
  if (mount("none", kMountPoints, "tmpfs", 0, "size=1m") != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mount a private tmpfs on ", kMountPoints));
  }
  private_mounts = true;
  return absl::OkStatus();
}

absl::StatusOr<DiskCounters> ReadDiskCounters(const std::string& disk) {
  const std::string path = absl::StrCat("/sys/block/", disk, "/stat");
  std::ifstream file(path);
  uint64_t v[13] = {};
  int n = 0;
  while (n < 13 && file >> v[n]) ++n;
  // Discards came with 4.18, in fields 12 to 15.
  if (n < 11) return absl::InternalError(absl::StrCat("read ", path, ": too few numbers"));
  DiskCounters counters;
  counters.read_ios = v[0];
  counters.read_bytes = v[2] * kSectorBytes;
  counters.write_ios = v[4];
  counters.write_bytes = v[6] * kSectorBytes;
  counters.in_flight = v[8];
  uint64_t discard_sectors = 0;
  if (n == 13 && file >> discard_sectors) counters.discard_bytes = discard_sectors * kSectorBytes;
  return counters;
}

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::Create(uint64_t size_bytes) {
  const int backing = open(kBackingDirectory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (backing < 0) return absl::ErrnoToStatus(errno, "make a nameless file in /dev/shm");
  if (ftruncate(backing, static_cast<off_t>(size_bytes)) != 0) {
    absl::Status status = absl::ErrnoToStatus(errno, "size the file in /dev/shm");
    close(backing);
    return status;
  }
  int fd = -1;
  auto number = AttachLoop(backing, &fd);
  close(backing);  // the loop device holds it now
  if (!number.ok()) return number.status();
  return std::unique_ptr<LoopDisk>(new LoopDisk(absl::StrCat("loop", *number), fd));
}

LoopDisk::~LoopDisk() { close(fd_); }

absl::Status LoopDisk::WaitForRest(absl::Duration rest) const {
  const absl::Time deadline = absl::Now() + absl::Seconds(20) + rest;
  absl::Time since = absl::Now();
  auto last = Counters();
  if (!last.ok()) return last.status();
  while (absl::Now() - since < rest) {
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(name_, " does not come to rest"));
    }
    absl::SleepFor(absl::Milliseconds(10));
    auto now = Counters();
    if (!now.ok()) return now.status();
    if (now->in_flight != 0 || !(*now == *last)) since = absl::Now();
    last = now;
  }
  return absl::OkStatus();
}

const char* FilesystemName(FilesystemKind kind) {
  switch (kind) {
    case FilesystemKind::kExt4:
      return "ext4";
    case FilesystemKind::kExt4NoJournal:
      return "ext4_nojournal";
    case FilesystemKind::kExt4DataJournal:
      return "ext4_datajournal";
    case FilesystemKind::kXfs:
      return "xfs";
    case FilesystemKind::kBtrfs:
      return "btrfs";
  }
  return "?";
}

const char* MkfsProgram(FilesystemKind kind) {
  switch (kind) {
    case FilesystemKind::kXfs:
      return "mkfs.xfs";
    case FilesystemKind::kBtrfs:
      return "mkfs.btrfs";
    default:
      return "mkfs.ext4";
  }
}

uint64_t DiskBytesFor(FilesystemKind kind) {
  switch (kind) {
    case FilesystemKind::kXfs:
      return uint64_t{384} << 20;
    default:
      return uint64_t{320} << 20;
  }
}

absl::StatusOr<std::unique_ptr<ScratchFilesystem>> ScratchFilesystem::Create(FilesystemKind kind,
                                                                             LoopDisk* disk) {
  if (!private_mounts) {
    return absl::FailedPreconditionError("EnterPrivateMounts must be called first, in main()");
  }
  auto made = RunCommand(MkfsCommand(kind, disk->path()));
  if (!made.ok()) return made.status();
  std::string directory = absl::StrCat(kMountPoints, "/scratch-XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make ", directory));
  }
  auto filesystem =
      std::unique_ptr<ScratchFilesystem>(new ScratchFilesystem(kind, disk, directory));
  absl::Status status = filesystem->Mount();
  if (!status.ok()) return status;
  return filesystem;
}

ScratchFilesystem::~ScratchFilesystem() {
  if (mounted_) umount2(mount_point_.c_str(), MNT_DETACH);
  rmdir(mount_point_.c_str());
}

absl::Status ScratchFilesystem::Mount() {
  const char* options = kind_ == FilesystemKind::kExt4DataJournal ? "data=journal" : nullptr;
  if (mount(disk_->path().c_str(), mount_point_.c_str(), MountType(kind_), MS_NOATIME, options) !=
      0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("mount ", FilesystemName(kind_), " on ", mount_point_));
  }
  mounted_ = true;
  return absl::OkStatus();
}

absl::Status ScratchFilesystem::Unmount() {
  if (umount2(mount_point_.c_str(), 0) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("unmount ", mount_point_));
  }
  mounted_ = false;
  return absl::OkStatus();
}

absl::Status ScratchFilesystem::UnmountBy(
    const std::function<absl::Status(const std::string&)>& unmount) {
  absl::Status status = unmount(mount_point_);
  if (status.ok()) mounted_ = false;
  return status;
}

absl::Status ScratchFilesystem::Remount() {
  absl::Status status = Unmount();
  if (status.ok()) status = Mount();
  if (status.ok()) status = disk_->WaitForRest(absl::Milliseconds(150));
  return status;
}

}  // namespace fleetblame::testing
