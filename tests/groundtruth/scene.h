// SPDX-License-Identifier: Apache-2.0
//
// What a scenario plays on: scratch disks, a filesystem on them (or none), and what may stand
// between the writers and that filesystem, or between it and the disks.
//
// Order of calls: Create, then what the scenario needs to have there beforehand, Settle, the
// measured span, Close. Whatever is left is taken apart by the destructor. Not thread-safe. Bytes
// throughout. UNIMPLEMENTED when this machine lacks what it takes: a reason to skip.
#ifndef TESTS_GROUNDTRUTH_SCENE_H_
#define TESTS_GROUNDTRUTH_SCENE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "node-agent/tracer/tracer.h"
#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {

enum class Surroundings {
  kPlain,      // the filesystem on the disk; without a filesystem, the disk itself
  kPartition,  // the filesystem is in a partition
  kOverlay,    // the writers see an overlay whose upper layer is the filesystem
  kErasable,   // without a filesystem: a disk that erases securely (tests/modules/fb_erase.c)
  kSwap,       // a file on the filesystem is swap space; without a filesystem, the disk is
};

class Scene {
 public:
  static absl::StatusOr<std::unique_ptr<Scene>> Create(FilesystemKind kind,
                                                       Surroundings surroundings);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // Where a path of a scenario is. Without a filesystem that is the disk, whatever the path.
  std::string PathOf(const std::string& path) const;
  // A directory of the filesystem itself, or the disk.
  std::string root() const;

  // The (first) disk itself.
  std::string DiskPath() const { return disks_.front()->path(); }
  std::vector<std::string> DiskNames() const;
  absl::StatusOr<std::vector<agent::DeviceNumber>> DiskNumbers() const;
  // Sums over the disks.
  absl::StatusOr<DiskCounters> Counters() const;
  absl::Status WaitForRest(absl::Duration rest) const;

  // See LoopDisk::Allocate.
  absl::Status AllocateDisks() const;

  // Unmounts and mounts again, and puts the surroundings up: from here on the disks rest.
  absl::Status Settle();
  // Takes surroundings and filesystem down; `unmount` gets the filesystem's mount point.
  absl::Status Close(const std::function<absl::Status(const std::string&)>& unmount);

 private:
  Scene(FilesystemKind kind, Surroundings surroundings)
      : kind_(kind), surroundings_(surroundings) {}
  absl::Status MakeOverlayDirectories();
  absl::Status MountOverlay();
  absl::Status UnmountOverlay();
  std::string SwapPath() const;
  absl::Status MakeSwapSpace();
  absl::Status StartSwapping();
  absl::Status StopSwapping();

  FilesystemKind kind_;
  Surroundings surroundings_;
  std::vector<std::unique_ptr<LoopDisk>> disks_;
  std::unique_ptr<ScratchFilesystem> filesystem_;  // goes before the disks
  bool overlay_ = false;
  bool swapping_ = false;
};

// A cgroup (version 2) that may use so much memory, while the object lives.
class MemoryCgroup {
 public:
  static absl::StatusOr<std::unique_ptr<MemoryCgroup>> Create(uint64_t limit_bytes);
  ~MemoryCgroup();
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;
  const std::string& path() const { return path_; }
  // Asks the kernel to take nearly all of its memory away, as far as it can be had at once.
  absl::Status TakeMemory() const;

 private:
  explicit MemoryCgroup(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_SCENE_H_
