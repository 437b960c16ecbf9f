// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/writeback_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fleetblame::testing {
namespace {

constexpr char kInstances[] = "/sys/kernel/tracing/instances";

// What follows `key` in a line, up to the next space.
std::string After(absl::string_view line, absl::string_view key) {
  const size_t at = line.find(key);
  if (at == absl::string_view::npos) return "";
  const absl::string_view rest = line.substr(at + key.size());
  return std::string(rest.substr(0, rest.find(' ')));
}

bool IsOfOne(absl::string_view line, const std::vector<agent::DeviceNumber>& disks) {
  for (const agent::DeviceNumber& disk : disks) {
    if (absl::StrContains(line, absl::StrCat(" bdi ", disk.major, ":", disk.minor, ": ")))
      return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WritebackLog>> WritebackLog::Begin() {
  const std::string folder = absl::StrCat(kInstances, "/fleetblame-test-", getpid());
  if (mkdir(folder.c_str(), 0700) != 0) {
    return absl::UnimplementedError(absl::StrCat("make a trace buffer in ", kInstances));
  }
  auto log = std::unique_ptr<WritebackLog>(new WritebackLog(folder));
  for (const char* event : {"writeback_start", "writeback_written"}) {
    std::ofstream enable(absl::StrCat(folder, "/events/writeback/", event, "/enable"));
    if (!(enable << "1" << std::flush)) {
      return absl::UnimplementedError(absl::StrCat("this kernel has no tracepoint ", event));
    }
  }
  return log;
}

WritebackLog::~WritebackLog() { rmdir(folder_.c_str()); }

std::map<std::string, uint64_t> WritebackLog::Pages(
    const std::vector<agent::DeviceNumber>& disks) const {
  std::map<std::string, uint64_t> pages;
  std::map<std::string, int64_t> to_write;  // by thread, when it started
  std::ifstream trace(folder_ + "/trace");
  std::string line;
  while (std::getline(trace, line)) {
    int64_t left = 0;
    if (!IsOfOne(line, disks) || !absl::SimpleAtoi(After(line, " nr_pages="), &left)) continue;
    const std::string thread = line.substr(0, line.find('['));
    if (absl::StrContains(line, " writeback_start: ")) {
      to_write[thread] = left;
    } else if (auto began = to_write.find(thread); began != to_write.end()) {
      if (began->second > left) pages[After(line, " reason=")] += began->second - left;
      to_write.erase(began);
    }
  }
  return pages;
}

}  // namespace fleetblame::testing
