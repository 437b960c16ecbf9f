// SPDX-License-Identifier: Apache-2.0
//
// What the running kernel offers to the BPF tracer, found out without attaching anything; the
// programs are loaded, though, since only the kernel knows whether it takes them. This is the text
// of `fleetblame-agent --check`. Each line names one ability, says what it is for, and, when it is
// missing, what that costs in accuracy and the way out.
//
// Threading: a query of the kernel that takes a second or two; safe from any thread.
// Errors: only when /proc or /sys themselves cannot be read; a missing ability is a line, no error.
#ifndef NODE_AGENT_TRACER_BPF_KERNEL_CHECK_H_
#define NODE_AGENT_TRACER_BPF_KERNEL_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fleetblame::agent {

struct CapabilityLine {
  enum class State {
    kYes,       // there
    kDegraded,  // missing, and the tracer works less exactly without it
    kMissing,   // missing, and the tracer cannot start without it
  };
  std::string name;  // "BTF", "hook ext4_da_write_end", ...
  State state = State::kYes;
  std::string meaning;  // what it gives
  std::string cost;     // what is lost without it; empty when state is kYes
  std::string remedy;   // the way out; empty when state is kYes or there is none
};

absl::StatusOr<std::vector<CapabilityLine>> CheckKernel();

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_KERNEL_CHECK_H_
