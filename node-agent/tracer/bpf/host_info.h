// SPDX-License-Identifier: Apache-2.0
//
// Small facts about the running kernel.
//
// Threading: pure reads; safe from any thread.
#ifndef NODE_AGENT_TRACER_BPF_HOST_INFO_H_
#define NODE_AGENT_TRACER_BPF_HOST_INFO_H_

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace fleetblame::agent {

// Raw build id of vmlinux; empty when unreadable.
std::string VmlinuxBuildId();
// The same from the contents of an ELF note section.
std::string BuildIdFromNotes(std::string_view notes);

// Names of writeback reasons for TracerInfo: "" first, then the kernel's by value, without prefix
// and in small letters.
std::vector<std::string> WritebackReasons(const std::map<int64_t, std::string>& enumerators);

absl::StatusOr<std::unique_ptr<std::istream>> OpenSymbols();

// Addresses [first, last) of functions in a table like /proc/kallsyms; a function whose address is
// hidden or unknown is left out.
struct FunctionRange {
  uint64_t first = 0;
  uint64_t last = 0;
};
std::map<std::string, FunctionRange> FindFunctions(std::istream& kallsyms,
                                                   const std::vector<std::string>& names);

// Grows when modules or BPF programs have come or gone since the last call.
uint64_t SymbolTableGeneration();

bool DirectoryHasEntries(const std::string& path);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_HOST_INFO_H_
