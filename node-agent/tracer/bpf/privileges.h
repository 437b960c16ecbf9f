// SPDX-License-Identifier: Apache-2.0
//
// Whether this process may use BPF, and which version 1 cgroup hierarchy this host has.
//
// Threading: pure reads of /proc and /sys; safe from any thread.
#ifndef NODE_AGENT_TRACER_BPF_PRIVILEGES_H_
#define NODE_AGENT_TRACER_BPF_PRIVILEGES_H_

#include <string>

#include "absl/status/status.h"

namespace fleetblame::agent {

// Why BPF cannot be used at all, or OK: privileges and lockdown.
absl::Status CheckPrivileges();

// Controller of the version 1 hierarchy that tells most about who a process is; empty when the
// host has none.
std::string CgroupV1Controller();

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_PRIVILEGES_H_
