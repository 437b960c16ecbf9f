// SPDX-License-Identifier: Apache-2.0
//
// Block devices stacked on scratch disks, for tests: what device mapper, md and nbd make of one or
// more loop devices. Nothing outlives the object; a killed process leaves the upper device, and the
// virtual machine it was made for ends.
//
// Not thread-safe. Sizes are bytes. Errors name the program that failed.
#ifndef TESTS_GROUNDTRUTH_STACKED_DISK_H_
#define TESTS_GROUNDTRUTH_STACKED_DISK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/groundtruth/nbd_disk.h"
#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {

enum class StackKind {
  kLinear,          // dm-linear in two segments on two disks, as LVM makes it
  kStripe,          // dm-stripe over two disks
  kCrypt,           // dm-crypt
  kSnapshotOrigin,  // dm-snapshot: the origin, whose old blocks are copied first
  kThin,            // dm-thin
  kRaid0,           // md, as the next two
  kRaid1,
  kRaid5,
  kCryptOnRaid1,  // three layers
  kLvm,           // a logical volume over two physical ones, by LVM's own tools
  kLvmSnapshot,   // the same with a snapshot of it
  kLoopOnExt4,    // a loop device on a file of another filesystem
  kLoopOnXfs,
  kNbdOnExt4,  // a network block device whose server writes to a file of another filesystem
  kMultipath,  // dm-multipath over two ways to the same disk
  kNvme,       // an NVMe namespace that two controllers lead to
  kNvmeSlow,   // another one, where requests are under way for long
  kHalfError,  // the second half of a dm device fails every IO
  kFlakey,     // a dm device that fails every IO in every other second
};

const char* StackName(StackKind kind);
bool IsLoopOnFile(StackKind kind);
// Whether a process stands between the device and the disk: what it writes is its own.
bool IsServed(StackKind kind);
// The name of that process.
inline constexpr char kServerComm[] = "fbw-server";
// Whether it is no stack but one disk with several ways to it.
bool IsMultipath(StackKind kind);
// Whether the kernel copies old blocks of it elsewhere, on nobody's behalf that it tells of.
bool IsSnapshotOrigin(StackKind kind);

class StackedDisk {
 public:
  // Why this stack cannot be made here (programs or drivers are missing); empty when it can.
  static std::string Unavailable(StackKind kind);

  // `disk_bytes`: size of each disk below.
  static absl::StatusOr<std::unique_ptr<StackedDisk>> Create(StackKind kind, uint64_t disk_bytes);
  ~StackedDisk();
  StackedDisk(const StackedDisk&) = delete;
  StackedDisk& operator=(const StackedDisk&) = delete;

  // Kernel name of the top-most device ("dm-0"), and of all devices from there down to the disks.
  const std::string& top() const { return top_; }
  std::string path() const { return "/dev/" + top_; }
  std::vector<std::string> devices() const;
  // The scratch disks, or the disk that is no stack.
  std::vector<std::string> leaves() const;
  // Where the filesystem below a loop device or a server is mounted; empty for other stacks.
  std::string outer_mount_point() const { return outer_ ? outer_->mount_point() : ""; }
  // Those of them (with others) that hold the data.
  uint64_t copies() const;
  // The ways to a disk that has several, by the kernel names of their devices and controllers.
  std::vector<std::string> paths() const;
  std::vector<std::string> controllers() const;

  // What the kernel has counted for one of the devices. Before 6.4 it counts a disk with several
  // ways on these alone.
  absl::StatusOr<DiskCounters> Counters(const std::string& device) const;
  absl::StatusOr<DiskCounters> SumOfPaths() const;
  bool IsCountedItself() const;

  // Waits until none of the devices has moved for `rest`.
  absl::Status WaitForRest(absl::Duration rest) const;

 private:
  explicit StackedDisk(StackKind kind) : kind_(kind) {}
  absl::Status AddDisks(size_t count, uint64_t bytes);
  absl::Status AddMapping(const std::string& name, const std::string& table);
  absl::Status AddVolume(bool snapshot);
  absl::Status AddLoop(FilesystemKind outer, uint64_t bytes);
  absl::Status FindHead(uint32_t nsid);
  absl::Status AddServed(FilesystemKind outer, uint64_t bytes);
  absl::StatusOr<std::string> DeviceOf(const std::string& mapping);
  absl::Status AddArray(const std::string& level);
  absl::Status Build(uint64_t disk_bytes);

  const StackKind kind_;
  std::vector<std::unique_ptr<LoopDisk>> disks_;
  std::unique_ptr<ScratchFilesystem> outer_;
  std::unique_ptr<LoopDisk> on_file_;
  std::unique_ptr<NbdDisk> served_;
  std::string top_;
  std::vector<std::string> middle_;    // kernel names of what is neither top nor disk
  std::vector<std::string> mappings_;  // names for dmsetup, in the order they were made
  std::vector<std::string> arrays_;    // kernel names of md devices
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_STACKED_DISK_H_
