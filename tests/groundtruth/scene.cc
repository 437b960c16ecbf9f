// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/scene.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

constexpr char kCgroups[] = "/sys/fs/cgroup";

bool WriteFile(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return good;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scene>> Scene::Create(FilesystemKind kind,
                                                     Surroundings surroundings) {
  if (!HaveProgram(MkfsProgram(kind))) {
    return absl::UnimplementedError(absl::StrCat(MkfsProgram(kind), " is not installed"));
  }
  if (!KernelHas(kind)) {
    return absl::UnimplementedError(
        absl::StrCat("this kernel cannot mount ", FilesystemName(kind)));
  }
  auto scene = std::unique_ptr<Scene>(new Scene(kind, surroundings));
  const bool partitioned = surroundings == Surroundings::kPartition;
  std::vector<LoopDisk*> disks;
  std::vector<std::string> devices;
  for (size_t i = 0; i < DisksOf(kind); ++i) {
    auto disk = surroundings == Surroundings::kErasable
                    ? LoopDisk::Existing("fberase")
                    : LoopDisk::Create(DiskBytesFor(kind), partitioned);
    if (!disk.ok()) return disk.status();
    disks.push_back(disk->get());
    devices.push_back(partitioned ? (*disk)->partition_path() : (*disk)->path());
    scene->disks_.push_back(*std::move(disk));
  }
  if (kind == FilesystemKind::kNone) return scene;
  auto filesystem = ScratchFilesystem::CreateOn(kind, devices, disks);
  if (!filesystem.ok()) return filesystem.status();
  scene->filesystem_ = *std::move(filesystem);
  return scene;
}

Scene::~Scene() {
  StopSwapping().IgnoreError();
  UnmountOverlay().IgnoreError();
}

std::string Scene::root() const {
  return filesystem_ == nullptr ? disks_.front()->path() : filesystem_->mount_point();
}

std::string Scene::PathOf(const std::string& path) const {
  if (filesystem_ == nullptr) return root();
  return absl::StrCat(root(), overlay_ ? "/merged/" : "/", path);
}

std::vector<std::string> Scene::DiskNames() const {
  std::vector<std::string> names;
  for (const auto& disk : disks_) names.push_back(disk->name());
  return names;
}

absl::StatusOr<std::vector<agent::DeviceNumber>> Scene::DiskNumbers() const {
  std::vector<agent::DeviceNumber> numbers;
  for (const auto& disk : disks_) {
    struct stat st {};
    if (stat(disk->path().c_str(), &st) != 0) return absl::ErrnoToStatus(errno, disk->path());
    numbers.push_back({major(st.st_rdev), minor(st.st_rdev)});
  }
  return numbers;
}

absl::StatusOr<DiskCounters> Scene::Counters() const {
  DiskCounters sum;
  for (const auto& disk : disks_) {
    auto one = disk->Counters();
    if (!one.ok()) return one.status();
    sum.read_ios += one->read_ios;
    sum.read_bytes += one->read_bytes;
    sum.write_ios += one->write_ios;
    sum.write_bytes += one->write_bytes;
    sum.discard_bytes += one->discard_bytes;
    sum.in_flight += one->in_flight;
  }
  return sum;
}

absl::Status Scene::WaitForRest(absl::Duration rest) const {
  for (const auto& disk : disks_) {
    if (absl::Status status = disk->WaitForRest(rest); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Scene::AllocateDisks() const {
  for (const auto& disk : disks_) {
    if (absl::Status status = disk->Allocate(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Scene::Settle() {
  // What this process makes belongs to nobody in the scenario: the unmount settles it.
  if (surroundings_ == Surroundings::kOverlay) {
    if (absl::Status status = MakeOverlayDirectories(); !status.ok()) return status;
  }
  if (surroundings_ == Surroundings::kSwap) {
    if (absl::Status status = MakeSwapSpace(); !status.ok()) return status;
  }
  if (filesystem_ != nullptr) {
    if (absl::Status status = filesystem_->Remount(); !status.ok()) return status;
  }
  if (surroundings_ == Surroundings::kOverlay) {
    if (absl::Status status = MountOverlay(); !status.ok()) return status;
  }
  if (surroundings_ == Surroundings::kSwap) {
    if (absl::Status status = StartSwapping(); !status.ok()) return status;
  }
  return WaitForRest(absl::Milliseconds(150));
}

absl::Status Scene::Close(const std::function<absl::Status(const std::string&)>& unmount) {
  if (absl::Status status = StopSwapping(); !status.ok()) return status;
  if (absl::Status status = UnmountOverlay(); !status.ok()) return status;
  if (filesystem_ == nullptr) return absl::OkStatus();
  return filesystem_->UnmountBy(unmount);
}

absl::Status Scene::MakeOverlayDirectories() {
  for (const char* name : {"lower", "upper", "work", "merged"}) {
    const std::string path = absl::StrCat(root(), "/", name);
    if (mkdir(path.c_str(), 0755) != 0) return absl::ErrnoToStatus(errno, path);
  }
  return absl::OkStatus();
}

absl::Status Scene::MountOverlay() {
  const std::string options = absl::StrCat("lowerdir=", root(), "/lower,upperdir=", root(),
                                           "/upper,workdir=", root(), "/work");
  const std::string target = absl::StrCat(root(), "/merged");
  if (mount("overlay", target.c_str(), "overlay", 0, options.c_str()) != 0) {
    if (errno == ENODEV) return absl::UnimplementedError("this kernel has no overlayfs");
    return absl::ErrnoToStatus(errno, "mount an overlay");
  }
  overlay_ = true;
  return absl::OkStatus();
}

absl::Status Scene::UnmountOverlay() {
  if (!overlay_) return absl::OkStatus();
  overlay_ = false;
  if (umount2(absl::StrCat(root(), "/merged").c_str(), 0) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "unmount the overlay");
}

std::string Scene::SwapPath() const {
  return filesystem_ == nullptr ? root() : absl::StrCat(root(), "/swapfile");
}

absl::Status Scene::MakeSwapSpace() {
  if (!HaveProgram("mkswap")) return absl::UnimplementedError("mkswap is not installed");
  if (filesystem_ != nullptr) {
    const int fd = open(SwapPath().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return absl::ErrnoToStatus(errno, SwapPath());
    const std::string zeros(1 << 20, '\0');
    for (int i = 0; i < 160; ++i) {
      if (write(fd, zeros.data(), zeros.size()) != static_cast<ssize_t>(zeros.size())) {
        close(fd);
        return absl::ErrnoToStatus(errno, absl::StrCat("fill ", SwapPath()));
      }
    }
    fsync(fd);
    close(fd);
  }
  if (auto made = RunCommand({"mkswap", SwapPath()}); !made.ok()) return made.status();
  const int fd = open(SwapPath().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
  return absl::OkStatus();
}

absl::Status Scene::StartSwapping() {
  if (swapon(SwapPath().c_str(), SWAP_FLAG_PREFER | 1000) != 0) {
    if (errno == ENOSYS) return absl::UnimplementedError("this kernel cannot swap");
    return absl::ErrnoToStatus(errno, absl::StrCat("swap to ", SwapPath()));
  }
  swapping_ = true;
  return absl::OkStatus();
}

absl::Status Scene::StopSwapping() {
  if (!swapping_) return absl::OkStatus();
  swapping_ = false;
  if (swapoff(SwapPath().c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("stop swapping to ", SwapPath()));
}

absl::StatusOr<std::unique_ptr<MemoryCgroup>> MemoryCgroup::Create(uint64_t limit_bytes) {
  const std::string root = kCgroups;
  std::ifstream list(root + "/cgroup.controllers");
  std::string word;
  bool memory = false;
  bool io = false;
  while (list >> word) {
    memory = memory || word == "memory";
    io = io || word == "io";
  }
  // Writeback by cgroup takes the io controller as well.
  if (!memory || !io || !WriteFile(root + "/cgroup.subtree_control", "+memory +io")) {
    return absl::UnimplementedError(
        absl::StrCat("no version 2 cgroups with memory and io controllers in ", root));
  }
  const std::string path = absl::StrCat(root, "/fleetblame-test-", getpid());
  if (mkdir(path.c_str(), 0755) != 0) return absl::ErrnoToStatus(errno, path);
  auto cgroup = std::unique_ptr<MemoryCgroup>(new MemoryCgroup(path));
  if (!WriteFile(path + "/memory.max", absl::StrCat(limit_bytes))) {
    return absl::ErrnoToStatus(errno, absl::StrCat("limit the memory of ", path));
  }
  return cgroup;
}

absl::Status MemoryCgroup::TakeMemory() const {
  for (const char* high : {"1M", "max"}) {
    if (!WriteFile(path_ + "/memory.high", high)) {
      return absl::ErrnoToStatus(errno, absl::StrCat("reclaim the memory of ", path_));
    }
  }
  return absl::OkStatus();
}

MemoryCgroup::~MemoryCgroup() { rmdir(path_.c_str()); }

}  // namespace fleetblame::testing
