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
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

constexpr char kBackingDirectory[] = "/dev/shm";
constexpr char kMountPoints[] = "/mnt";
constexpr uint64_t kSectorBytes = 512;  // the unit of /sys/block/*/stat, whatever the device has

bool private_mounts = false;

// Puts `backing` behind a free loop device and returns its number; `fd` gets it open.
absl::StatusOr<int> AttachLoop(int backing, bool partitioned, int* fd) {
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
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (partitioned ? LO_FLAGS_PARTSCAN : 0);
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

struct Traits {
  FilesystemKind kind;
  const char* name;
  const char* type;  // for mount
  std::vector<std::string> mkfs;
  const char* mount_options = nullptr;
  uint64_t mebibytes = 320;
  size_t disks = 1;
  uint64_t data_copies = 1;
};

const std::vector<Traits>& AllTraits() {
  // Nothing is left for the kernel's own threads to initialize later.
  static const char* const kAtOnce = "lazy_itable_init=0,lazy_journal_init=0";
  using Kind = FilesystemKind;
  static const auto* const kTraits = new std::vector<Traits>{
      {Kind::kExt4, "ext4", "ext4", {"mkfs.ext4", "-q", "-F", "-E", kAtOnce}},
      {Kind::kExt4NoJournal,
       "ext4_nojournal",
       "ext4",
       {"mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", kAtOnce}},
      // With data=journal every block is written to the journal and then again in place.
      {.kind = Kind::kExt4DataJournal,
       .name = "ext4_datajournal",
       .type = "ext4",
       .mkfs = {"mkfs.ext4", "-q", "-F", "-E", kAtOnce},
       .mount_options = "data=journal",
       .data_copies = 2},
      {Kind::kExt4FastCommit,
       "ext4_fastcommit",
       "ext4",
       {"mkfs.ext4", "-q", "-F", "-O", "fast_commit", "-E", kAtOnce}},
      {Kind::kExt4SmallJournal,
       "ext4_smalljournal",
       "ext4",
       {"mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", kAtOnce}},
      {Kind::kExt4Encrypted,
       "ext4_fscrypt",
       "ext4",
       {"mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "encrypt", "-E", kAtOnce}},
      {Kind::kExt4Quota,
       "ext4_quota",
       "ext4",
       {"mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "quota,project", "-E",
        "quotatype=usrquota:prjquota,lazy_itable_init=0,lazy_journal_init=0"},
       "usrquota,prjquota"},
      {Kind::kXfs, "xfs", "xfs", {"mkfs.xfs", "-q", "-f"}, nullptr, 384},
      {Kind::kXfsQuota, "xfs_quota", "xfs", {"mkfs.xfs", "-q", "-f"}, "uquota,pquota", 384},
      {Kind::kXfsSmallLog,
       "xfs_smalllog",
       "xfs",
       {"mkfs.xfs", "-q", "-f", "--unsupported", "-l", "size=6m"},
       nullptr,
       384},
      {Kind::kBtrfs, "btrfs", "btrfs", {"mkfs.btrfs", "-q", "-f"}},
      {Kind::kBtrfsCompressed,
       "btrfs_compressed",
       "btrfs",
       {"mkfs.btrfs", "-q", "-f"},
       "compress-force=zstd"},
      {.kind = Kind::kBtrfsRaid1,
       .name = "btrfs_raid1",
       .type = "btrfs",
       .mkfs = {"mkfs.btrfs", "-q", "-f", "-d", "raid1", "-m", "raid1"},
       .disks = 2,
       .data_copies = 2},
      {Kind::kF2fs, "f2fs", "f2fs", {"mkfs.f2fs", "-q", "-f"}},
      {Kind::kNone, "disk", "", {}, nullptr, 128},
  };
  return *kTraits;
}

const Traits& TraitsOf(FilesystemKind kind) {
  for (const Traits& traits : AllTraits()) {
    if (traits.kind == kind) return traits;
  }
  return AllTraits().front();
}

// A table with one Linux partition from the second MiB to the end, as the BIOS of old had it.
absl::Status WritePartitionTable(int fd, uint64_t size_bytes) {
  unsigned char table[512] = {};
  constexpr uint32_t kFirst = 2048;
  const auto sectors = static_cast<uint32_t>(size_bytes / kSectorBytes - kFirst);
  unsigned char* entry = table + 446;
  entry[4] = 0x83;
  for (int i = 0; i < 4; ++i) {
    entry[8 + i] = static_cast<unsigned char>(kFirst >> (8 * i));
    entry[12 + i] = static_cast<unsigned char>(sectors >> (8 * i));
  }
  table[510] = 0x55;
  table[511] = 0xaa;
  if (pwrite(fd, table, sizeof(table), 0) == sizeof(table)) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "write a partition table");
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

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::Create(uint64_t size_bytes, bool partitioned) {
  const int backing = open(kBackingDirectory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (backing < 0) return absl::ErrnoToStatus(errno, "make a nameless file in /dev/shm");
  return CreateFrom(backing, size_bytes, partitioned);
}

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::CreateOn(const std::string& path,
                                                             uint64_t size_bytes) {
  const int backing = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (backing < 0) return absl::ErrnoToStatus(errno, absl::StrCat("make ", path));
  return CreateFrom(backing, size_bytes, false);
}

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::CreateFrom(int backing, uint64_t size_bytes,
                                                               bool partitioned) {
  if (ftruncate(backing, static_cast<off_t>(size_bytes)) != 0) {
    absl::Status status = absl::ErrnoToStatus(errno, "size the file of a scratch disk");
    close(backing);
    return status;
  }
  if (partitioned) {
    if (absl::Status status = WritePartitionTable(backing, size_bytes); !status.ok()) {
      close(backing);
      return status;
    }
  }
  int fd = -1;
  auto number = AttachLoop(backing, partitioned, &fd);
  if (!number.ok()) {
    close(backing);
    return number.status();
  }
  return std::unique_ptr<LoopDisk>(
      new LoopDisk(absl::StrCat("loop", *number), backing, size_bytes, fd));
}

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::Existing(const std::string& name) {
  const std::string path = absl::StrCat("/dev/", name);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::UnimplementedError(absl::StrCat("there is no disk ", path));
  uint64_t bytes = 0;
  if (ioctl(fd, BLKGETSIZE64, &bytes) != 0) {
    absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("ask for the size of ", path));
    close(fd);
    return status;
  }
  return std::unique_ptr<LoopDisk>(new LoopDisk(name, -1, bytes, fd));
}

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::Twin() const {
  const int backing = fcntl(backing_, F_DUPFD_CLOEXEC, 0);
  if (backing < 0) return absl::ErrnoToStatus(errno, "open a file again");
  return CreateFrom(backing, size_bytes_, false);
}

LoopDisk::~LoopDisk() {
  close(fd_);
  if (backing_ >= 0) close(backing_);
}

absl::Status LoopDisk::Allocate() const {
  const int error = posix_fallocate(backing_, 0, static_cast<off_t>(size_bytes_));
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrCat("allocate all of ", name_));
}

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

const char* FilesystemName(FilesystemKind kind) { return TraitsOf(kind).name; }

const char* MkfsProgram(FilesystemKind kind) {
  const Traits& traits = TraitsOf(kind);
  return traits.mkfs.empty() ? "true" : traits.mkfs.front().c_str();
}

uint64_t DiskBytesFor(FilesystemKind kind) { return TraitsOf(kind).mebibytes << 20; }

size_t DisksOf(FilesystemKind kind) { return TraitsOf(kind).disks; }

uint64_t DataCopiesOf(FilesystemKind kind) { return TraitsOf(kind).data_copies; }

bool KernelHas(FilesystemKind kind) {
  const std::string type = TraitsOf(kind).type;
  if (type.empty()) return true;
  std::ifstream list("/proc/filesystems");
  std::string word;
  while (list >> word) {
    if (word == type) return true;
  }
  return RunCommand({"modprobe", "-q", type}).ok();
}

absl::StatusOr<std::unique_ptr<ScratchFilesystem>> ScratchFilesystem::Create(FilesystemKind kind,
                                                                             LoopDisk* disk) {
  return CreateOn(kind, {disk->path()}, {disk});
}

absl::StatusOr<std::unique_ptr<ScratchFilesystem>> ScratchFilesystem::CreateOn(
    FilesystemKind kind, const std::vector<std::string>& devices, std::vector<LoopDisk*> disks) {
  if (!private_mounts) {
    return absl::FailedPreconditionError("EnterPrivateMounts must be called first, in main()");
  }
  std::vector<std::string> command = TraitsOf(kind).mkfs;
  command.insert(command.end(), devices.begin(), devices.end());
  auto made = RunCommand(command);
  if (!made.ok()) return made.status();
  std::string directory = absl::StrCat(kMountPoints, "/scratch-XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make ", directory));
  }
  auto filesystem = std::unique_ptr<ScratchFilesystem>(
      new ScratchFilesystem(kind, devices, std::move(disks), directory));
  absl::Status status = filesystem->Mount();
  if (!status.ok()) return status;
  return filesystem;
}

ScratchFilesystem::~ScratchFilesystem() {
  if (mounted_) umount2(mount_point_.c_str(), MNT_DETACH);
  rmdir(mount_point_.c_str());
}

absl::Status ScratchFilesystem::Mount() {
  const Traits& traits = TraitsOf(kind_);
  std::vector<std::string> options;
  if (traits.mount_options != nullptr) options.push_back(traits.mount_options);
  for (size_t i = 1; i < devices_.size(); ++i) {
    options.push_back(absl::StrCat("device=", devices_[i]));
  }
  // Since 5.13 ext4 reads block bitmaps ahead at a random moment of the five seconds after the
  // mount. Kernels before do not know the option.
  if (absl::string_view(traits.type) == "ext4") {
    options.push_back("no_prefetch_block_bitmaps");
    if (MountWith(options)) return absl::OkStatus();
    options.pop_back();
  }
  if (MountWith(options)) return absl::OkStatus();
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("mount ", FilesystemName(kind_), " on ", mount_point_));
}

bool ScratchFilesystem::MountWith(const std::vector<std::string>& options) {
  mounted_ = mount(devices_.front().c_str(), mount_point_.c_str(), TraitsOf(kind_).type, MS_NOATIME,
                   absl::StrJoin(options, ",").c_str()) == 0;
  return mounted_;
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
  for (LoopDisk* disk : disks_) {
    if (status.ok()) status = disk->WaitForRest(absl::Milliseconds(150));
  }
  return status;
}

}  // namespace fleetblame::testing
