// SPDX-License-Identifier: Apache-2.0
//
// Which host this is: a stable id that does not give away /etc/machine-id, the id of the current
// boot, names.
//
// Threading: any. Errors: a host without machine-id gets a random id that is kept in the state
// directory; only when that cannot be written is there an error.
#ifndef NODE_AGENT_HOST_IDENTITY_H_
#define NODE_AGENT_HOST_IDENTITY_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fleetblame::agent {

struct HostIdentityOptions {
  std::string machine_id_path = "/etc/machine-id";
  std::string state_directory;  // holds "host-id" when it had to be made up
};

// 32 hexadecimal digits: a hash of the machine id, as machine-id(5) asks for, or a random number.
absl::StatusOr<std::string> DeriveHostId(const HostIdentityOptions& options);

// 1 to 64 characters of [A-Za-z0-9._-].
absl::Status CheckHostId(std::string_view host_id);

std::string ReadBootId();
std::string ReadHostname();
std::string ReadKernelRelease();

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_HOST_IDENTITY_H_
