// SPDX-License-Identifier: Apache-2.0
#include "node-agent/dictionary/device_info.h"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxValueBytes = 256;
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
  const fs::path link = fs::path(sysfs) / "dev/block" / absl::StrCat(major, ":", minor);
  const fs::path directory = fs::canonical(link, error);
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
  device.set_model(FirstAttribute(disk, {"device/model", "dm/name"}));
  device.set_persistent_id(FirstAttribute(
      disk, {"wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid"}));
  const std::string rotational = ReadAttribute(disk / "queue/rotational");
  if (rotational == "0" || rotational == "1") device.set_rotational(rotational == "1");
  return device;
}

}  // namespace fleetblame::agent
