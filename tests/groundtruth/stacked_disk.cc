// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/stacked_disk.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

constexpr uint64_t kSectorBytes = 512;
// Nothing is secret here.
constexpr char kKey[] =
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

bool IsArray(StackKind kind) {
  return kind == StackKind::kRaid0 || kind == StackKind::kRaid1 || kind == StackKind::kRaid5 ||
         kind == StackKind::kCryptOnRaid1;
}

bool IsMapping(StackKind kind) {
  if (IsLoopOnFile(kind) || IsServed(kind) || IsMultipath(kind)) return false;
  return !IsArray(kind) || kind == StackKind::kCryptOnRaid1;
}

// The device mapper target, or the md level, as the kernel names them.
std::string DriverOf(StackKind kind) {
  switch (kind) {
    case StackKind::kLinear:
      return "linear";
    case StackKind::kStripe:
      return "striped";
    case StackKind::kCrypt:
    case StackKind::kCryptOnRaid1:
      return "crypt";
    case StackKind::kSnapshotOrigin:
    case StackKind::kLvmSnapshot:
      return "snapshot-origin";
    case StackKind::kLvm:
      return "linear";
    case StackKind::kThin:
      return "thin-pool";
    case StackKind::kLoopOnExt4:
    case StackKind::kLoopOnXfs:
      return "loop";
    case StackKind::kNbdOnExt4:
      return "nbd";
    case StackKind::kMultipath:
      return "multipath";
    case StackKind::kNvme:
    case StackKind::kNvmeSlow:
      return "nvme";
    case StackKind::kHalfError:
      return "error";
    case StackKind::kFlakey:
      return "flakey";
    case StackKind::kRaid0:
      return "raid0";
    case StackKind::kRaid1:
      return "raid1";
    case StackKind::kRaid5:
      return "raid5";
  }
  return "";
}

bool FileHolds(const char* path, const std::string& text) {
  auto content = RunCommand({"cat", path});
  return content.ok() && content->find(text) != std::string::npos;
}

// By the class that the PCI bus has for them.
int NvmeControllers() {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", none)) {
    std::ifstream file(entry.path() / "class");
    std::string text;
    if (file >> text && text == "0x010802") ++count;
  }
  return count;
}

bool IsVolume(StackKind kind) { return kind == StackKind::kLvm || kind == StackKind::kLvmSnapshot; }

// LVM without its daemons and without udev, and blind to whatever else this machine has.
absl::StatusOr<std::string> Lvm(std::vector<std::string> arguments) {
  std::vector<std::string> command = {
      "lvm", arguments.front(), "--config",
      "devices{use_devicesfile=0 filter=[\"a|/dev/loop|\",\"r|.*|\"]} "
      "global{use_lvmpolld=0 locking_dir=\"/run\"} "
      "backup{backup=0 archive=0} "
      "activation{udev_sync=0 udev_rules=0 monitoring=0}"};
  command.insert(command.end(), arguments.begin() + 1, arguments.end());
  return RunCommand(command);
}

std::string CryptTable(const std::string& device, uint64_t sectors) {
  return absl::StrCat("0 ", sectors, " crypt aes-xts-plain64 ", kKey, " 0 ", device, " 0");
}

}  // namespace

const char* StackName(StackKind kind) {
  switch (kind) {
    case StackKind::kLinear:
      return "dm_linear";
    case StackKind::kStripe:
      return "dm_stripe";
    case StackKind::kCrypt:
      return "dm_crypt";
    case StackKind::kSnapshotOrigin:
      return "dm_snapshot";
    case StackKind::kThin:
      return "dm_thin";
    case StackKind::kRaid0:
      return "md_raid0";
    case StackKind::kRaid1:
      return "md_raid1";
    case StackKind::kRaid5:
      return "md_raid5";
    case StackKind::kCryptOnRaid1:
      return "dm_crypt_md_raid1";
    case StackKind::kLvm:
      return "lvm";
    case StackKind::kLvmSnapshot:
      return "lvm_snapshot";
    case StackKind::kLoopOnExt4:
      return "loop_on_ext4";
    case StackKind::kLoopOnXfs:
      return "loop_on_xfs";
    case StackKind::kNbdOnExt4:
      return "nbd_on_ext4";
    case StackKind::kMultipath:
      return "dm_multipath";
    case StackKind::kNvme:
      return "nvme_multipath";
    case StackKind::kNvmeSlow:
      return "nvme_failover";
    case StackKind::kHalfError:
      return "dm_error";
    case StackKind::kFlakey:
      return "dm_flakey";
  }
  return "?";
}

bool IsLoopOnFile(StackKind kind) {
  return kind == StackKind::kLoopOnExt4 || kind == StackKind::kLoopOnXfs;
}

bool IsServed(StackKind kind) { return kind == StackKind::kNbdOnExt4; }

bool IsMultipath(StackKind kind) {
  return kind == StackKind::kNvme || kind == StackKind::kNvmeSlow;
}

bool IsSnapshotOrigin(StackKind kind) {
  return kind == StackKind::kSnapshotOrigin || kind == StackKind::kLvmSnapshot;
}

std::string StackedDisk::Unavailable(StackKind kind) {
  if (std::string why = ScratchDisksUnavailable(); !why.empty()) return why;
  if (IsServed(kind)) return NbdDisk::Unavailable();
  if (IsMultipath(kind)) {
    if (NvmeControllers() < 2) return "no NVMe disk that two controllers lead to";
    if (access("/sys/module/nvme", F_OK) != 0) return "the module nvme is not loaded";
  }
  if (IsMapping(kind)) {
    if (!HaveProgram("dmsetup")) return "dmsetup is not installed";
    auto targets = RunCommand({"dmsetup", "targets"});
    if (!targets.ok() || targets->find(DriverOf(kind)) == std::string::npos) {
      return absl::StrCat("the kernel has no device mapper target ", DriverOf(kind));
    }
  }
  if (IsVolume(kind) && !HaveProgram("lvm")) return "lvm is not installed";
  if (IsArray(kind)) {
    if (!HaveProgram("mdadm")) return "mdadm is not installed";
    const std::string level = kind == StackKind::kCryptOnRaid1 ? "raid1" : DriverOf(kind);
    if (!FileHolds("/proc/mdstat", level)) return absl::StrCat("the kernel has no md ", level);
  }
  return "";
}

// The driver may still be looking for them.
absl::Status StackedDisk::FindHead(uint32_t nsid) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline) {
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block")) {
      std::ifstream file(entry.path() / "nsid");
      uint32_t there = 0;
      std::error_code none;
      if (!(file >> there) || there != nsid) continue;
      if (std::filesystem::exists(entry.path() / "mq", none)) continue;
      top_ = entry.path().filename();
      if (paths().size() >= 2) return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
  return absl::NotFoundError(absl::StrCat("no NVMe namespace ", nsid, " with two ways to it"));
}

absl::Status StackedDisk::AddDisks(size_t count, uint64_t bytes) {
  for (size_t i = 0; i < count; ++i) {
    auto disk = LoopDisk::Create(bytes);
    if (!disk.ok()) return disk.status();
    disks_.push_back(*std::move(disk));
  }
  return absl::OkStatus();
}

absl::Status StackedDisk::AddMapping(const std::string& name, const std::string& table) {
  auto made = RunCommand({"dmsetup", "create", name, "--table", table});
  if (!made.ok()) return made.status();
  mappings_.push_back(name);
  auto device = DeviceOf(name);
  if (!device.ok()) return device.status();
  if (!top_.empty()) middle_.push_back(top_);
  top_ = *device;
  return absl::OkStatus();
}

absl::StatusOr<std::string> StackedDisk::DeviceOf(const std::string& mapping) {
  auto minor = RunCommand({"dmsetup", "info", "-c", "--noheadings", "-o", "minor", mapping});
  if (!minor.ok()) return minor.status();
  return absl::StrCat("dm-", absl::StripAsciiWhitespace(*minor));
}

absl::Status StackedDisk::AddVolume(bool snapshot) {
  std::vector<std::vector<std::string>> commands = {
      {"pvcreate", "-q", "-y"},
      {"vgcreate", "-q", "fbvg"},
      {"lvcreate", "-q", "-y", "-Wn", "-Zn", "-n", "data", "-L", "600m", "fbvg"}};
  for (const auto& disk : disks_) {
    commands[0].push_back(disk->path());
    commands[1].push_back(disk->path());
  }
  if (snapshot) {
    commands.push_back({"lvcreate", "-q", "-y", "-s", "-n", "snap", "-L", "150m", "fbvg/data"});
  }
  for (const auto& command : commands) {
    if (auto made = Lvm(command); !made.ok()) return made.status();
  }
  if (snapshot) mappings_ = {"fbvg-data-real", "fbvg-snap-cow", "fbvg-snap"};
  for (const std::string& mapping : mappings_) {
    auto device = DeviceOf(mapping);
    if (!device.ok()) return device.status();
    middle_.push_back(*device);
  }
  mappings_.push_back("fbvg-data");
  auto device = DeviceOf(mappings_.back());
  if (!device.ok()) return device.status();
  top_ = *device;
  return absl::OkStatus();
}

absl::Status StackedDisk::AddLoop(FilesystemKind outer, uint64_t bytes) {
  auto filesystem = ScratchFilesystem::Create(outer, disks_[0].get());
  if (!filesystem.ok()) return filesystem.status();
  outer_ = *std::move(filesystem);
  auto disk = LoopDisk::CreateOn(outer_->mount_point() + "/disk", bytes);
  if (!disk.ok()) return disk.status();
  on_file_ = *std::move(disk);
  top_ = on_file_->name();
  return absl::OkStatus();
}

absl::Status StackedDisk::AddServed(FilesystemKind outer, uint64_t bytes) {
  auto filesystem = ScratchFilesystem::Create(outer, disks_[0].get());
  if (!filesystem.ok()) return filesystem.status();
  outer_ = *std::move(filesystem);
  auto disk = NbdDisk::Create(outer_->mount_point() + "/disk", bytes, kServerComm);
  if (!disk.ok()) return disk.status();
  served_ = *std::move(disk);
  top_ = served_->name();
  return absl::OkStatus();
}

absl::Status StackedDisk::AddArray(const std::string& level) {
  static int next = 0;
  const std::string name = absl::StrCat("md", next++);
  std::vector<std::string> command = {"mdadm",
                                      "--create",
                                      "/dev/" + name,
                                      "--run",
                                      "--quiet",
                                      "--metadata=1.2",
                                      absl::StrCat("--level=", level.substr(4)),
                                      absl::StrCat("--raid-devices=", disks_.size())};
  if (level != "raid0") command.push_back("--assume-clean");
  if (level != "raid0") command.push_back("--bitmap=none");
  for (const auto& disk : disks_) command.push_back(disk->path());
  auto made = RunCommand(command);
  if (!made.ok()) return made.status();
  arrays_.push_back(name);
  if (!top_.empty()) middle_.push_back(top_);
  top_ = name;
  return absl::OkStatus();
}

absl::Status StackedDisk::Build(uint64_t bytes) {
  const uint64_t sectors = bytes / kSectorBytes;
  const size_t counts[] = {2, 2, 1, 2, 2, 2, 2, 3, 2, 2, 2, 1, 1, 1, 1, 0, 0, 1, 1};
  absl::Status status = AddDisks(counts[static_cast<int>(kind_)], bytes);
  if (!status.ok()) return status;
  auto path = [this](int i) { return disks_[i]->path(); };
  switch (kind_) {
    case StackKind::kLinear:
      // The second part begins in the middle of its disk, the first ends before its disk does.
      return AddMapping(
          "fb-linear", absl::StrCat("0 ", sectors / 2, " linear ", path(0), " 2048\n", sectors / 2,
                                    " ", sectors / 2, " linear ", path(1), " ", sectors / 4, "\n"));
    case StackKind::kStripe:
      return AddMapping("fb-stripe", absl::StrCat("0 ", sectors, " striped 2 128 ", path(0), " 0 ",
                                                  path(1), " 0"));
    case StackKind::kCrypt:
      return AddMapping("fb-crypt", CryptTable(path(0), sectors));
    case StackKind::kSnapshotOrigin: {
      status = AddMapping("fb-base", absl::StrCat("0 ", sectors, " linear ", path(0), " 0"));
      if (!status.ok()) return status;
      const std::string base = "/dev/" + top_;
      status = AddMapping("fb-snap",
                          absl::StrCat("0 ", sectors, " snapshot ", base, " ", path(1), " P 16"));
      if (!status.ok()) return status;
      // The snapshot lies beside the origin, not below it.
      middle_.pop_back();
      const std::string snapshot = top_;
      status = AddMapping("fb-origin", absl::StrCat("0 ", sectors, " snapshot-origin ", base));
      middle_ = {base.substr(5), snapshot};
      return status;
    }
    case StackKind::kThin:
      status = AddMapping("fb-pool", absl::StrCat("0 ", sectors, " thin-pool ", path(0), " ",
                                                  path(1), " 128 0 1 skip_block_zeroing"));
      if (!status.ok()) return status;
      if (auto made = RunCommand({"dmsetup", "message", "fb-pool", "0", "create_thin 0"});
          !made.ok()) {
        return made.status();
      }
      return AddMapping("fb-thin", absl::StrCat("0 ", sectors, " thin /dev/", top_, " 0"));
    case StackKind::kRaid0:
    case StackKind::kRaid1:
    case StackKind::kRaid5:
      return AddArray(DriverOf(kind_));
    case StackKind::kCryptOnRaid1:
      status = AddArray("raid1");
      if (!status.ok()) return status;
      return AddMapping("fb-crypt", CryptTable("/dev/" + top_, sectors * 3 / 4));
    case StackKind::kLvm:
    case StackKind::kLvmSnapshot:
      return AddVolume(kind_ == StackKind::kLvmSnapshot);
    case StackKind::kLoopOnExt4:
      return AddLoop(FilesystemKind::kExt4, bytes * 3 / 4);
    case StackKind::kLoopOnXfs:
      return AddLoop(FilesystemKind::kXfs, bytes * 3 / 4);
    case StackKind::kNbdOnExt4:
      return AddServed(FilesystemKind::kExt4, bytes * 3 / 4);
    case StackKind::kMultipath: {
      auto twin = disks_[0]->Twin();
      if (!twin.ok()) return twin.status();
      disks_.push_back(*std::move(twin));
      return AddMapping(
          "fb-paths", absl::StrCat("0 ", sectors, " multipath 0 0 1 1 round-robin 0 2 1 ", path(0),
                                   " 1 ", path(1), " 1"));
    }
    case StackKind::kNvme:
      return FindHead(1);
    case StackKind::kNvmeSlow:
      return FindHead(2);
    case StackKind::kFlakey:
      return AddMapping("fb-flakey", absl::StrCat("0 ", sectors, " flakey ", path(0), " 0 1 1"));
    case StackKind::kHalfError:
      return AddMapping("fb-error", absl::StrCat("0 ", sectors / 2, " linear ", path(0), " 0\n",
                                                 sectors / 2, " ", sectors / 2, " error\n"));
  }
  return absl::InternalError("no such stack");
}

absl::StatusOr<std::unique_ptr<StackedDisk>> StackedDisk::Create(StackKind kind,
                                                                 uint64_t disk_bytes) {
  // Without udev the programs make the device files themselves.
  setenv("DM_DISABLE_UDEV", "1", 1);
  setenv("LVM_SUPPRESS_FD_WARNINGS", "1", 1);
  std::unique_ptr<StackedDisk> stack(new StackedDisk(kind));
  if (absl::Status status = stack->Build(disk_bytes); !status.ok()) return status;
  return stack;
}

StackedDisk::~StackedDisk() {
  if (IsVolume(kind_) && Lvm({"vgremove", "-q", "-ff", "-y", "fbvg"}).ok()) mappings_.clear();
  for (size_t i = mappings_.size(); i-- > 0;) {
    RunCommand({"dmsetup", "remove", "--retry", mappings_[i]}).status().IgnoreError();
  }
  for (const std::string& array : arrays_) {
    RunCommand({"mdadm", "--stop", "--quiet", "/dev/" + array}).status().IgnoreError();
  }
}

std::vector<std::string> StackedDisk::leaves() const {
  std::vector<std::string> names;
  for (const auto& disk : disks_) names.push_back(disk->name());
  if (IsMultipath(kind_)) names.push_back(top_);
  return names;
}

std::vector<std::string> StackedDisk::devices() const {
  std::vector<std::string> names = {top_};
  names.insert(names.end(), middle_.begin(), middle_.end());
  for (const auto& disk : disks_) names.push_back(disk->name());
  return names;
}

uint64_t StackedDisk::copies() const {
  return kind_ == StackKind::kRaid1 || kind_ == StackKind::kCryptOnRaid1 ? 2 : 1;
}

std::vector<std::string> StackedDisk::paths() const {
  std::vector<std::string> names;
  const size_t n = top_.find('n', 4);
  if (!IsMultipath(kind_) || n == std::string::npos) return names;
  const std::string begin = top_.substr(0, n) + "c", end = top_.substr(n);
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block")) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, begin) && absl::EndsWith(name, end)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> StackedDisk::controllers() const {
  std::vector<std::string> names;
  for (const std::string& path : paths()) {
    std::error_code error;
    const auto device = std::filesystem::canonical("/sys/block/" + path + "/device", error);
    if (!error) names.push_back(device.filename());
  }
  return names;
}

bool StackedDisk::IsCountedItself() const {
  return !IsMultipath(kind_) ||
         FileHolds(absl::StrCat("/sys/block/", top_, "/queue/iostats").c_str(), "1");
}

absl::StatusOr<DiskCounters> StackedDisk::SumOfPaths() const {
  DiskCounters sum;
  for (const std::string& path : paths()) {
    auto counters = ReadDiskCounters(path);
    if (!counters.ok()) return counters.status();
    sum.read_ios += counters->read_ios;
    sum.read_bytes += counters->read_bytes;
    sum.write_ios += counters->write_ios;
    sum.write_bytes += counters->write_bytes;
    sum.discard_bytes += counters->discard_bytes;
    sum.in_flight += counters->in_flight;
  }
  return sum;
}

absl::StatusOr<DiskCounters> StackedDisk::Counters(const std::string& device) const {
  return IsCountedItself() ? ReadDiskCounters(device) : SumOfPaths();
}

absl::Status StackedDisk::WaitForRest(absl::Duration rest) const {
  const absl::Time deadline = absl::Now() + absl::Seconds(30) + rest;
  std::vector<DiskCounters> last;
  absl::Time since = absl::Now();
  while (true) {
    std::vector<DiskCounters> now;
    bool idle = true;
    for (const std::string& name : devices()) {
      auto counters = Counters(name);
      if (!counters.ok()) return counters.status();
      idle &= counters->in_flight == 0;
      now.push_back(*counters);
    }
    if (!idle || now != last) since = absl::Now();
    last = std::move(now);
    if (absl::Now() - since >= rest) return absl::OkStatus();
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(top_, " does not come to rest"));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

}  // namespace fleetblame::testing
