// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/device_filter.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

std::string NumberText(DeviceNumber device) {
  return absl::StrCat(device.major, ":", device.minor);
}

// RAMDISK_MAJOR of the kernel's list of devices.
bool IsRamDisk(DeviceNumber device) { return device.major == 1; }

bool Matches(const std::string& pattern, DeviceNumber device, const std::string& name) {
  if (pattern == NumberText(device)) return true;
  return !name.empty() && fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool HasGlob(std::string_view pattern) {
  return pattern.find_first_of("*?[") != std::string_view::npos;
}

}  // namespace

std::string BlockDeviceName(DeviceNumber device) {
  std::error_code error;
  auto target = std::filesystem::read_symlink("/sys/dev/block/" + NumberText(device), error);
  return error ? "" : target.filename().string();
}

absl::Status DeviceFilter::Select(const DeviceSelection& selection) {
  std::set<DeviceNumber> watched;
  if (selection.patterns.empty()) {
    for (const auto& [device, name] : known_) {
      if (!IsRamDisk(device)) watched.insert(device);
    }
  }
  for (const std::string& item : selection.patterns) {
    bool take_away = item.starts_with('!');
    std::string pattern = take_away ? item.substr(1) : item;
    bool found = false;
    for (const auto& [device, name] : known_) {
      if (!Matches(pattern, device, name)) continue;
      found = true;
      if (take_away) {
        watched.erase(device);
      } else {
        watched.insert(device);
      }
    }
    if (!found && !take_away && !HasGlob(pattern)) {
      return absl::NotFoundError(absl::StrCat("the recording has no device \"", pattern, "\""));
    }
  }
  watched_ = std::move(watched);
  all_ = false;
  return absl::OkStatus();
}

}  // namespace fleetblame::agent
