// SPDX-License-Identifier: Apache-2.0
//
// Questions to the kernel's own type information (BTF), of vmlinux and of loaded modules.
//
// Threading: const after Load; safe from any thread.
// Errors: FAILED_PRECONDITION when the kernel carries no BTF.
#ifndef NODE_AGENT_TRACER_BPF_KERNEL_BTF_H_
#define NODE_AGENT_TRACER_BPF_KERNEL_BTF_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

struct btf;

namespace fleetblame::agent {

class KernelBtf {
 public:
  static absl::StatusOr<KernelBtf> Load();

  // Names of the types behind a tracepoint's arguments, e.g. {"request_queue", "bio"}; scalars are
  // "". Nothing when there is no such tracepoint.
  std::optional<std::vector<std::string>> TracepointArguments(const std::string& tracepoint) const;

  // The same, of any loaded module too: a kernel may be given a tracepoint by one. Reads them all
  // when the kernel itself has none of this name.
  std::optional<std::vector<std::string>> TracepointArgumentsAnywhere(
      const std::string& tracepoint) const;

  // Module that is loaded but whose types the kernel keeps to itself (before 5.11, or without
  // CONFIG_DEBUG_INFO_BTF_MODULES), among those that a tracepoint of this name may be in; else "".
  std::string ModuleWithoutTypes(const std::string& tracepoint) const;

  // Whether a task can be preempted while it is in a tracepoint (late 6.x and later).
  bool TracepointsArePreemptible() const;

  // Whether the kernel itself has a function of this name that is described, as those are that
  // programs may call.
  bool HasFunction(const std::string& name) const;

  // Value of an enumerator, wherever it is declared.
  std::optional<int64_t> Enumerator(const std::string& name) const;
  // All enumerators of one enum by value.
  std::map<int64_t, std::string> EnumValues(const std::string& enum_name) const;

 private:
  struct Deleter {
    void operator()(btf* object) const;
  };
  std::vector<std::unique_ptr<btf, Deleter>> objects_;  // vmlinux first
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_KERNEL_BTF_H_
