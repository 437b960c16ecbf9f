// SPDX-License-Identifier: Apache-2.0
//
// Paths of control groups by the number that the kernel knows them by, which is the inode number of
// their directory.
//
// Threading: one thread.
// Errors: none; a group that is gone, or whose hierarchy is mounted nowhere, has the path "".
#ifndef NODE_AGENT_TRACER_BPF_CGROUP_PATHS_H_
#define NODE_AGENT_TRACER_BPF_CGROUP_PATHS_H_

#include <cstdint>
#include <map>
#include <string>

namespace fleetblame::agent {

class CgroupPaths {
 public:
  // Finds the mounted hierarchies. `v1_controller` is the controller whose version 1 hierarchy
  // counts, or empty.
  static CgroupPaths ForThisHost(const std::string& v1_controller);
  // For tests: the two hierarchies' directories, "" = none.
  CgroupPaths(std::string unified, std::string v1);

  // A walk over the hierarchy is made at most once between calls of NewWindow.
  std::string Resolve(uint64_t id, bool v1);
  void NewWindow();

 private:
  struct Hierarchy {
    std::string root;
    std::map<uint64_t, std::string> paths;
    bool walked = false;
  };
  static void Walk(Hierarchy* hierarchy);

  Hierarchy unified_;
  Hierarchy v1_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_CGROUP_PATHS_H_
