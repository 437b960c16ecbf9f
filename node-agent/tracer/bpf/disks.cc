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

bool Matches(const std::string& pattern, const Disk& disk) {
  if (pattern == absl::StrCat(disk.number.major, ":", disk.number.minor)) return true;
  return fnmatch(pattern.c_str(), disk.name.c_str(), 0) == 0;
}

}  // namespace

std::vector<Disk> ListDisks(const std::string& sys_block) {
  std::vector<Disk> disks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sys_block, error)) {
    Disk disk;
    disk.name = entry.path().filename().string();
    std::ifstream dev(entry.path() / "dev");
    char colon = 0;
    if (!(dev >> disk.number.major >> colon >> disk.number.minor) || colon != ':') continue;
    disk.passes_on = !std::filesystem::exists(entry.path() / "mq", error);
    disks.push_back(std::move(disk));
  }
  std::sort(disks.begin(), disks.end(),
            [](const Disk& a, const Disk& b) { return a.name < b.name; });
  return disks;
}

absl::StatusOr<std::vector<Disk>> SelectDisks(const std::vector<Disk>& disks,
                                              const DeviceSelection& selection) {
  std::vector<bool> chosen(disks.size(), false);
  if (selection.patterns.empty()) {
    for (size_t i = 0; i < disks.size(); ++i) {
      chosen[i] = disks[i].number.major != kRamDiskMajor && !disks[i].passes_on;
    }
  }
  for (std::string pattern : selection.patterns) {
    bool take_away = !pattern.empty() && pattern[0] == '!';
    if (take_away) pattern.erase(0, 1);
    bool found = false;
    for (size_t i = 0; i < disks.size(); ++i) {
      if (!Matches(pattern, disks[i])) continue;
      found = true;
      if (disks[i].passes_on && !take_away) {
        if (HasGlob(pattern)) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("device ", disks[i].name,
                         " passes its IO on to other disks; watch those (see /sys/block/",
                         disks[i].name, "/slaves)"));
      }
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

bool DiskIsIdle(const std::string& name) {
  std::ifstream file(absl::StrCat("/sys/block/", name, "/inflight"));
  uint64_t reads = 0, writes = 0;
  return static_cast<bool>(file >> reads >> writes) && reads == 0 && writes == 0;
}

}  // namespace fleetblame::agent
