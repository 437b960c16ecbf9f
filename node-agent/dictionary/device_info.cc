// SPDX-License-Identifier: Apache-2.0
#include "node-agent/dictionary/device_info.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxValueBytes = 256;
constexpr size_t kMaxLower = 32;
// Majors with fixed meaning (Documentation/admin-guide/devices.txt of the kernel).
constexpr uint32_t kLoopMajor = 7;
constexpr uint32_t kSdMajor = 8;
constexpr uint32_t kSdMinorsPerDisk = 16;

// First line of an attribute without white space around it; empty when there is none.
std::string ReadAttribute(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return "";
  absl::StripAsciiWhitespace(&line);
  if (line.size() > kMaxValueBytes) line.resize(kMaxValueBytes);
  return line;
}

std::string FirstAttribute(const fs::path& directory, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::string value = ReadAttribute(directory / name);
    if (!value.empty()) return value;
  }
  return "";
}

std::vector<std::string> NamesIn(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Directory of a device, or an error.
fs::path DirectoryOf(const std::string& sysfs, uint32_t major, uint32_t minor,
                     std::error_code* error) {
  return fs::canonical(fs::path(sysfs) / "dev/block" / absl::StrCat(major, ":", minor), *error);
}

}  // namespace

v1::Device NameDevice(uint32_t major, uint32_t minor) {
  v1::Device device;
  device.set_major(major);
  device.set_minor(minor);
  if (major == kLoopMajor) {
    device.set_name(absl::StrCat("loop", minor));
  } else if (major == kSdMajor && minor % kSdMinorsPerDisk == 0) {
    device.set_name(absl::StrCat("sd", std::string(1, static_cast<char>('a' + minor / 16))));
  } else {
    device.set_name(absl::StrCat(major, ":", minor));
  }
  return device;
}

v1::Device ReadDevice(const std::string& sysfs, uint32_t major, uint32_t minor) {
  v1::Device device = NameDevice(major, minor);
  std::error_code error;
  const fs::path directory = DirectoryOf(sysfs, major, minor, &error);
  if (error) return device;
  // '!' stands for a slash in names such as "cciss/c0d0".
  std::string name = directory.filename().string();
  for (char& c : name) {
    if (c == '!') c = '/';
  }
  device.set_name(name);

  fs::path disk = directory;
  if (fs::exists(directory / "partition", error)) {
    disk = directory.parent_path();
    device.set_disk(disk.filename().string());
  }
  device.set_model(FirstAttribute(disk, {"device/model"}));
  device.set_alias(FirstAttribute(disk, {"dm/name", "md/array_name"}));
  for (const std::string& lower : NamesIn(disk / "slaves")) {
    if (static_cast<size_t>(device.lower_size()) == kMaxLower) break;
    device.add_lower(lower);
  }
  // The head of an NVMe namespace with several paths is a disk: the paths are none.
  device.set_stacked(device.lower_size() > 0);
  device.set_persistent_id(FirstAttribute(
      disk, {"wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid"}));
  const std::string rotational = ReadAttribute(disk / "queue/rotational");
  if (rotational == "0" || rotational == "1") device.set_rotational(rotational == "1");
  return device;
}

v1::Device ReadPartition(const std::string& sysfs, uint32_t major, uint32_t minor,
                         uint32_t number) {
  v1::Device device = ReadDevice(sysfs, major, minor);
  std::error_code error;
  const fs::path disk = DirectoryOf(sysfs, major, minor, &error);
  if (error) return device;
  for (const std::string& name : NamesIn(disk)) {
    if (ReadAttribute(disk / name / "partition") != absl::StrCat(number)) continue;
    device.set_disk(device.name());
    device.set_name(name);
    std::ifstream dev(disk / name / "dev");
    uint32_t part_major = 0, part_minor = 0;
    char colon = 0;
    if (dev >> part_major >> colon >> part_minor) {
      device.set_major(part_major);
      device.set_minor(part_minor);
    }
    break;
  }
  return device;
}

}  // namespace fleetblame::agent
