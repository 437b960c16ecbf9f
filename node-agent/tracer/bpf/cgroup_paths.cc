// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/cgroup_paths.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"

namespace fleetblame::agent {
namespace {

// More groups than any host should have; bounds memory and time of one walk.
constexpr size_t kMaxGroups = 65536;

}  // namespace

CgroupPaths CgroupPaths::ForThisHost(const std::string& v1_controller) {
  std::string unified;
  std::string v1;
  std::ifstream mounts("/proc/self/mounts");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::string source, point, type, options;
    if (!(fields >> source >> point >> type >> options)) continue;
    if (type == "cgroup2" && unified.empty()) unified = point;
    if (type == "cgroup" && v1.empty() && !v1_controller.empty()) {
      std::vector<std::string> list = absl::StrSplit(options, ',');
      for (const std::string& option : list) {
        if (option == v1_controller) v1 = point;
      }
    }
  }
  return CgroupPaths(unified, v1);
}

CgroupPaths::CgroupPaths(std::string unified, std::string v1) {
  unified_.root = std::move(unified);
  v1_.root = std::move(v1);
}

void CgroupPaths::NewWindow() {
  unified_.walked = false;
  v1_.walked = false;
}

void CgroupPaths::Walk(Hierarchy* hierarchy) {
  hierarchy->walked = true;
  if (hierarchy->root.empty()) return;
  std::map<uint64_t, std::string> paths;
  struct stat info;
  if (stat(hierarchy->root.c_str(), &info) == 0) paths[info.st_ino] = "/";
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(
      hierarchy->root, std::filesystem::directory_options::skip_permission_denied, error);
  for (; !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    if (paths.size() >= kMaxGroups) break;
    std::error_code gone;
    if (!it->is_directory(gone) || gone) continue;
    if (stat(it->path().c_str(), &info) != 0) continue;
    paths[info.st_ino] = it->path().string().substr(hierarchy->root.size());
  }
  // A group that was removed since may still be named by rows to come.
  for (auto& [id, path] : hierarchy->paths) {
    if (paths.size() >= kMaxGroups) break;
    paths.emplace(id, std::move(path));
  }
  hierarchy->paths = std::move(paths);
}

std::string CgroupPaths::Resolve(uint64_t id, bool v1) {
  Hierarchy& hierarchy = v1 ? v1_ : unified_;
  auto entry = hierarchy.paths.find(id);
  if (entry == hierarchy.paths.end() && !hierarchy.walked) {
    Walk(&hierarchy);
    entry = hierarchy.paths.find(id);
  }
  return entry == hierarchy.paths.end() ? "" : entry->second;
}

}  // namespace fleetblame::agent
