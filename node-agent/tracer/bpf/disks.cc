// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/disks.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kRamDiskMajor = 1;
constexpr uint64_t kSectorBytes = 512;

bool HasGlob(std::string_view pattern) {
  return pattern.find_first_of("*?[") != std::string_view::npos;
}

// Pages in memory, not a disk.
bool IsRamDisk(const Disk& disk) {
  return disk.number.major == kRamDiskMajor || absl::StartsWith(disk.name, "zram");
}

bool ReadNumber(const std::filesystem::path& path, DeviceNumber* number) {
  std::ifstream dev(path);
  char colon = 0;
  return (dev >> number->major >> colon >> number->minor) && colon == ':';
}

std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool HasParity(const std::filesystem::path& disk) {
  std::ifstream file(disk / "md/level");
  std::string level;
  return (file >> level) && (level == "raid4" || level == "raid5" || level == "raid6");
}

bool Matches(const std::string& pattern, const Disk& disk) {
  if (pattern == absl::StrCat(disk.number.major, ":", disk.number.minor)) return true;
  return fnmatch(pattern.c_str(), disk.name.c_str(), 0) == 0;
}

}  // namespace

std::vector<Disk> ListDisks(const std::string& sys_block) {
  std::vector<Disk> disks;
  std::error_code error;
  const std::filesystem::path root(sys_block);
  const std::vector<std::string> names = NamesIn(root);
  for (const std::string& name : names) {
    Disk disk;
    disk.name = name;
    if (!ReadNumber(root / name / "dev", &disk.number)) continue;
    const bool requests = std::filesystem::exists(root / name / "mq", error);
    disk.head = !requests && absl::StartsWith(name, "nvme");
    disk.bios = !requests && !disk.head;
    disk.lower = NamesIn(root / name / "slaves");
    disk.holders = NamesIn(root / name / "holders");
    disk.parity = HasParity(root / name);
    disks.push_back(std::move(disk));
  }
  return disks;
}

absl::StatusOr<std::vector<Disk>> SelectDisks(const std::vector<Disk>& disks,
                                              const DeviceSelection& selection) {
  std::vector<bool> chosen(disks.size(), false);
  if (selection.patterns.empty()) {
    for (size_t i = 0; i < disks.size(); ++i) {
      chosen[i] = !IsRamDisk(disks[i]);
    }
  }
  for (std::string pattern : selection.patterns) {
    bool take_away = !pattern.empty() && pattern[0] == '!';
    if (take_away) pattern.erase(0, 1);
    bool found = false;
    for (size_t i = 0; i < disks.size(); ++i) {
      if (!Matches(pattern, disks[i])) continue;
      found = true;
      chosen[i] = !take_away;
    }
    if (!found && !take_away && !HasGlob(pattern)) {
      return absl::NotFoundError(absl::StrCat("no disk is named \"", pattern,
                                              "\"; give a name from /sys/block, a pattern such as "
                                              "sd*, or MAJOR:MINOR of a whole disk"));
    }
  }
  std::vector<Disk> result;
  for (size_t i = 0; i < disks.size(); ++i) {
    if (chosen[i]) result.push_back(disks[i]);
  }
  return result;
}

DeviceNumber TopMostAbove(const Disk& disk, const std::vector<Disk>& disks) {
  constexpr int kMostLayers = 16;
  const Disk* at = &disk;
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const Disk* next = nullptr;
    int found = 0;
    for (const Disk& other : disks) {
      if (std::find(at->holders.begin(), at->holders.end(), other.name) == at->holders.end()) {
        continue;
      }
      next = &other;
      ++found;
    }
    if (found == 0) break;
    if (found > 1) return disk.number;
    at = next;
  }
  return at == &disk ? DeviceNumber{} : at->number;
}

DeviceNumber WritersOf(const Disk& disk, const std::vector<Disk>& disks, bool* noted) {
  constexpr int kMostLayers = 16;
  auto by_name = [&](const std::vector<std::string>& names) {
    std::vector<const Disk*> found;
    for (const Disk& other : disks) {
      if (std::find(names.begin(), names.end(), other.name) != names.end()) found.push_back(&other);
    }
    return found;
  };
  // Parity is written for it, or several devices share it: an origin and its snapshots, a pool.
  auto is_base = [&](const Disk& d) {
    return d.parity || (d.bios && by_name(d.holders).size() > 1);
  };
  auto base_below = [&](const Disk& d) -> const Disk* {
    for (const Disk* lower : by_name(d.lower)) {
      if (is_base(*lower)) return lower;
    }
    return nullptr;
  };
  *noted = false;
  if (disk.bios && (disk.parity || base_below(disk) != nullptr)) {
    *noted = true;
    return disk.parity ? disk.number : base_below(disk)->number;
  }
  const Disk* at = &disk;
  for (int layer = 0; layer < kMostLayers; ++layer) {
    if (is_base(*at)) return at->number;
    const std::vector<const Disk*> holders = by_name(at->holders);
    if (holders.size() != 1) break;
    // Beside it below the same device: where a snapshot keeps what it needs.
    if (const Disk* base = base_below(*holders[0]); base != nullptr) return base->number;
    at = holders[0];
  }
  return {};
}

absl::StatusOr<DiskStat> ParseDiskStat(std::string_view text) {
  std::vector<uint64_t> fields;
  for (absl::string_view word : absl::StrSplit(absl::string_view(text.data(), text.size()),
                                               absl::ByAnyChar(" \t\n"), absl::SkipEmpty())) {
    uint64_t value = 0;
    if (!absl::SimpleAtoi(word, &value)) {
      return absl::DataLossError(absl::StrCat("disk statistics hold \"", word, "\", no number"));
    }
    fields.push_back(value);
  }
  if (fields.size() < 11) {
    return absl::DataLossError(
        absl::StrCat("disk statistics have ", fields.size(), " fields, not 11 or more"));
  }
  DiskStat stat;
  stat.read_ios = fields[0];
  stat.read_bytes = fields[2] * kSectorBytes;
  stat.write_ios = fields[4];
  stat.write_bytes = fields[6] * kSectorBytes;
  if (fields.size() >= 15) {
    stat.discard_ios = fields[11];
    stat.discard_bytes = fields[13] * kSectorBytes;
  }
  return stat;
}

absl::StatusOr<DiskStat> ReadDiskStat(const std::string& name) {
  std::string path = absl::StrCat("/sys/block/", name, "/stat");
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && text.empty()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return ParseDiskStat(text);
}

std::vector<std::string> PathsOfHead(const std::string& head, const std::string& sys_block) {
  std::vector<std::string> paths;
  const size_t n = head.find('n', 4);
  if (!absl::StartsWith(head, "nvme") || n == std::string::npos) return paths;
  const std::string pattern = absl::StrCat(head.substr(0, n), "c*", head.substr(n));
  for (const std::string& name : NamesIn(sys_block)) {
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) paths.push_back(name);
  }
  return paths;
}

bool HeadIsCounted(const std::string& head, const std::string& sys_block) {
  std::ifstream file(absl::StrCat(sys_block, "/", head, "/queue/iostats"));
  int on = 0;
  return (file >> on) && on != 0;
}

DiskStat PathSums::Add(const std::map<std::string, DiskStat>& now) {
  auto add = [](const DiskStat& from, DiskStat* to) {
    to->read_ios += from.read_ios;
    to->read_bytes += from.read_bytes;
    to->write_ios += from.write_ios;
    to->write_bytes += from.write_bytes;
    to->discard_ios += from.discard_ios;
    to->discard_bytes += from.discard_bytes;
  };
  auto began_anew = [](const DiskStat& before, const DiskStat& after) {
    return after.read_bytes < before.read_bytes || after.write_bytes < before.write_bytes ||
           after.discard_bytes < before.discard_bytes;
  };
  for (const auto& [path, stat] : last_) {
    auto same = now.find(path);
    if (same == now.end() || began_anew(stat, same->second)) add(stat, &gone_);
  }
  last_ = now;
  DiskStat sum = gone_;
  for (const auto& [path, stat] : now) add(stat, &sum);
  return sum;
}

bool DiskIsIdle(const std::string& name) {
  std::ifstream file(absl::StrCat("/sys/block/", name, "/inflight"));
  uint64_t reads = 0, writes = 0;
  return static_cast<bool>(file >> reads >> writes) && reads == 0 && writes == 0;
}

absl::StatusOr<DiskStat> DiskReader::Read() {
  if (!on_paths_) return ReadDiskStat(name_);
  std::map<std::string, DiskStat> stats;
  for (const std::string& path : PathsOfHead(name_)) {
    // One that has gone meanwhile is not there.
    if (auto stat = ReadDiskStat(path); stat.ok()) stats[path] = *stat;
  }
  return sums_.Add(stats);
}

bool DiskReader::IsIdle() const {
  if (!on_paths_) return DiskIsIdle(name_);
  const std::vector<std::string> paths = PathsOfHead(name_);
  return std::all_of(paths.begin(), paths.end(), DiskIsIdle);
}

}  // namespace fleetblame::agent
