// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/file_path.h"

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fleetblame::agent {
namespace {

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string Unescape(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      int value = 0;
      bool octal = true;
      for (size_t k = i + 1; k <= i + 3; ++k) {
        octal = octal && text[k] >= '0' && text[k] <= '7';
        value = value * 8 + (text[k] - '0');
      }
      if (octal) {
        plain.push_back(static_cast<char>(value));
        i += 3;
        continue;
      }
    }
    plain.push_back(text[i]);
  }
  return plain;
}

}  // namespace

std::string BuildPath(std::string_view names, bool complete, std::string_view mount_point) {
  std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(names.data(), names.size()), '\0', absl::SkipEmpty());
  if (parts.empty()) return "";
  std::string path;
  if (complete && !mount_point.empty()) {
    if (mount_point != "/") path.assign(mount_point);
  } else {
    path = "…";
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) absl::StrAppend(&path, "/", *part);
  return path;
}

void MountTable::Parse(std::string_view mountinfo) {
  points_.clear();
  for (absl::string_view line :
       absl::StrSplit(absl::string_view(mountinfo.data(), mountinfo.size()), '\n')) {
    // id parent major:minor root mount-point ...
    std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.size() < 5 || fields[3] != "/") continue;
    std::vector<absl::string_view> numbers = absl::StrSplit(fields[2], ':');
    DeviceNumber device;
    if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &device.major) ||
        !absl::SimpleAtoi(numbers[1], &device.minor)) {
      continue;
    }
    std::string point = Unescape(fields[4]);
    auto [entry, fresh] = points_.emplace(device, point);
    if (!fresh && point.size() < entry->second.size()) entry->second = point;
  }
}

void MountTable::Reload() {
  std::ifstream file("/proc/self/mountinfo");
  if (!file) return;
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!text.empty()) Parse(text);
}

std::string MountTable::MountPoint(DeviceNumber filesystem) const {
  auto entry = points_.find(filesystem);
  return entry == points_.end() ? "" : entry->second;
}

}  // namespace fleetblame::agent
