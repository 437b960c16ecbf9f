// SPDX-License-Identifier: Apache-2.0
//
// The programs of bpf/fleetblame.bpf.c: the tracepoint each sits on, in which of a tracepoint's
// historic forms it can, what it is for and what it costs to go without it.
//
// Threading: pure.
#ifndef NODE_AGENT_TRACER_BPF_PROGRAMS_H_
#define NODE_AGENT_TRACER_BPF_PROGRAMS_H_

#include <string>
#include <vector>

#include "node-agent/tracer/bpf/kernel_btf.h"

namespace fleetblame::agent {

// How a program comes to a tracepoint's arguments.
enum class Access {
  kTyped,    // as the kernel's BTF describes them
  kUntyped,  // numbers, and pointers to types of the kernel itself
  kRecord,   // by the record that the tracepoint makes for perf
};

struct ProgramVariant {
  const char* name;  // of the program
  const char* tracepoint;
  // Type of the argument at `index`: the mark of the form that this program understands.
  int index;
  const char* type;  // "" = any
  // What is not typed is for modules whose types the kernel does not describe.
  Access access = Access::kTyped;
  std::vector<const char*> fields = {};  // of the record, that the program reads
};

// One ability, by one of several programs.
struct ProgramGroup {
  const char* ability;
  bool required;
  const char* meaning;
  const char* cost;  // of its absence
  std::vector<ProgramVariant> variants;
  bool only_preemptible = false;  // only for kernels whose tracepoints can be preempted
  bool only_stacked = false;      // attached once a stacked device is watched
};

const std::vector<ProgramGroup>& AllPrograms();

// Whether this kernel needs the group at all.
bool Applies(const ProgramGroup& group, const KernelBtf& kernel);

// The variant that this kernel can take, or null.
const ProgramVariant* ChooseVariant(const ProgramGroup& group, const KernelBtf& kernel);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_PROGRAMS_H_
