// SPDX-License-Identifier: Apache-2.0
//
// Scratch disks and filesystems for tests, benchmarks and demonstrations: a loop device over a
// nameless file on tmpfs, and a filesystem mounted from it. Nothing is left behind whatever ends
// the process, SIGKILL included: the backing file has no name, the loop device detaches itself on
// last close, and the mount stands in a mount namespace that dies with the process
// (EnterPrivateMounts).
//
// Not thread-safe. Sizes are bytes. Errors say what was tried and what is missing.
#ifndef TESTS_GROUNDTRUTH_SCRATCH_DISK_H_
#define TESTS_GROUNDTRUTH_SCRATCH_DISK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fleetblame::testing {

// Why scratch disks cannot be made here ("needs root", "no loop devices", ...); empty when they
// can.
std::string ScratchDisksUnavailable();

// Gives this process mounts of its own, with an empty /mnt. Call it in main(), before any other
// thread exists. Further calls do nothing.
absl::Status EnterPrivateMounts();

// Bytes and IOs that the kernel has counted for a disk: /sys/block/<name>/stat.
struct DiskCounters {
  uint64_t read_ios = 0;
  uint64_t read_bytes = 0;
  uint64_t write_ios = 0;
  uint64_t write_bytes = 0;
  uint64_t discard_bytes = 0;
  uint64_t in_flight = 0;
  bool operator==(const DiskCounters&) const = default;
};
absl::StatusOr<DiskCounters> ReadDiskCounters(const std::string& disk);

class LoopDisk {
 public:
  // The backing file is sparse, on /dev/shm. With `partitioned` all but the first MiB is in one
  // partition.
  static absl::StatusOr<std::unique_ptr<LoopDisk>> Create(uint64_t size_bytes,
                                                          bool partitioned = false);
  // The same on a file of a filesystem, which is made and must not outlive it.
  static absl::StatusOr<std::unique_ptr<LoopDisk>> CreateOn(const std::string& path,
                                                            uint64_t size_bytes);
  // Another device on the same file: a second way to the same data.
  absl::StatusOr<std::unique_ptr<LoopDisk>> Twin() const;
  // No loop device but a disk that is there already, and stays. UNIMPLEMENTED if it is not.
  static absl::StatusOr<std::unique_ptr<LoopDisk>> Existing(const std::string& name);
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  const std::string& name() const { return name_; }  // "loop3"
  std::string path() const { return "/dev/" + name_; }
  std::string partition_path() const { return path() + "p1"; }

  // Gives it all its memory now. Later the kernel charges it to the cgroup of whoever wrote.
  absl::Status Allocate() const;

  absl::StatusOr<DiskCounters> Counters() const { return ReadDiskCounters(name_); }

  // Waits until nothing is in flight and the counters have stood still for `rest`.
  absl::Status WaitForRest(absl::Duration rest) const;

 private:
  static absl::StatusOr<std::unique_ptr<LoopDisk>> CreateFrom(int backing, uint64_t size_bytes,
                                                              bool partitioned);
  LoopDisk(std::string name, int backing, uint64_t size_bytes, int fd)
      : name_(std::move(name)), backing_(backing), size_bytes_(size_bytes), fd_(fd) {}

  std::string name_;
  int backing_;  // -1: of a disk that was there
  uint64_t size_bytes_;
  int fd_;  // holds the device: it detaches on last close
};

enum class FilesystemKind {
  kExt4,
  kExt4NoJournal,
  kExt4DataJournal,
  kExt4FastCommit,
  kExt4SmallJournal,  // the least that mkfs allows: its space runs out all the time
  kExt4Encrypted,     // takes encrypted directories
  kExt4Quota,         // counts blocks by user and project
  kXfs,
  kXfsQuota,
  kXfsSmallLog,  // its log is full all the time
  kBtrfs,
  kBtrfsCompressed,
  kBtrfsRaid1,  // on two disks
  kF2fs,
  kNone,  // the bare disk
};

const char* FilesystemName(FilesystemKind kind);
// How many disks it stands on, and how often it writes each byte of file data.
size_t DisksOf(FilesystemKind kind);
uint64_t DataCopiesOf(FilesystemKind kind);
// Whether the running kernel has it, or can load it.
bool KernelHas(FilesystemKind kind);
// The mkfs program of a kind, for a look whether it is installed.
const char* MkfsProgram(FilesystemKind kind);
// Smallest disk that its mkfs and this project's tests are happy with.
uint64_t DiskBytesFor(FilesystemKind kind);

class ScratchFilesystem {
 public:
  // Makes the filesystem on the disk and mounts it. `disk` must outlive it. EnterPrivateMounts must
  // have been called.
  static absl::StatusOr<std::unique_ptr<ScratchFilesystem>> Create(FilesystemKind kind,
                                                                   LoopDisk* disk);
  // The same on block devices that stand on `disks`: partitions, or what a driver stacks on them.
  static absl::StatusOr<std::unique_ptr<ScratchFilesystem>> CreateOn(
      FilesystemKind kind, const std::vector<std::string>& devices, std::vector<LoopDisk*> disks);
  // Unmounts.
  ~ScratchFilesystem();
  ScratchFilesystem(const ScratchFilesystem&) = delete;
  ScratchFilesystem& operator=(const ScratchFilesystem&) = delete;

  const std::string& mount_point() const { return mount_point_; }

  // Unmounts, mounts again, and waits for rest: no journal recovery, lazy initialisation or cached
  // page of an earlier phase reaches into what is measured next.
  absl::Status Remount();
  absl::Status Mount();
  absl::Status Unmount();
  // Leaves the unmounting to `unmount`, which gets the mount point: another process, say.
  absl::Status UnmountBy(const std::function<absl::Status(const std::string&)>& unmount);

 private:
  ScratchFilesystem(FilesystemKind kind, std::vector<std::string> devices,
                    std::vector<LoopDisk*> disks, std::string mount_point)
      : kind_(kind),
        devices_(std::move(devices)),
        disks_(std::move(disks)),
        mount_point_(std::move(mount_point)) {}

  bool MountWith(const std::vector<std::string>& options);  // false: see errno

  FilesystemKind kind_;
  std::vector<std::string> devices_;
  std::vector<LoopDisk*> disks_;
  std::string mount_point_;
  bool mounted_ = false;
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_SCRATCH_DISK_H_
