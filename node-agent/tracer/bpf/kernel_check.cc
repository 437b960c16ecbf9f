// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/kernel_check.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "node-agent/tracer/bpf/loader.h"
#include "node-agent/tracer/bpf/privileges.h"
#include "node-agent/tracer/bpf/programs.h"

namespace fleetblame::agent {
namespace {

using State = CapabilityLine::State;

CapabilityLine Privileges() {
  CapabilityLine line;
  line.name = "privileges";
  line.meaning = "may load and attach BPF programs";
  if (absl::Status status = CheckPrivileges(); !status.ok()) {
    line.state = State::kMissing;
    line.cost = "nothing can be traced";
    line.remedy = std::string(status.message());
  }
  return line;
}

CapabilityLine Jit() {
  CapabilityLine line;
  line.name = "BPF JIT";
  line.meaning = "BPF programs run as machine code";
  std::ifstream file("/proc/sys/net/core/bpf_jit_enable");
  int value = 1;
  if (file >> value && value == 0) {
    line.state = State::kDegraded;
    line.cost = "tracing costs several times as much";
    line.remedy = "sysctl net.core.bpf_jit_enable=1";
  }
  return line;
}

// Without addresses in kallsyms stacks cannot be named, and functions that work for everybody not
// be told from others.
CapabilityLine Symbols() {
  CapabilityLine line;
  line.name = "kallsyms";
  line.meaning = "kernel addresses have names";
  std::ifstream file("/proc/kallsyms");
  std::string symbol;
  bool any = false;
  bool addresses = false;
  // The first ones may really lie at 0.
  while (!addresses && std::getline(file, symbol)) {
    any = true;
    addresses = !absl::StartsWith(symbol, "0000000000000000 ");
  }
  if (!any) {
    line.state = State::kDegraded;
    line.cost = "stacks are shown as addresses, and btrfs commits may be blamed on who calls them";
    line.remedy = "use a kernel with CONFIG_KALLSYMS=y";
  } else if (!addresses) {
    line.state = State::kDegraded;
    line.cost = "stacks are shown as addresses, and btrfs commits may be blamed on who calls them";
    line.remedy = "sysctl kernel.kptr_restrict=1 and run with CAP_SYSLOG";
  }
  return line;
}

std::string RemedyFor(const ProgramGroup& group, const KernelBtf& kernel) {
  if (group.required) {
    return "none for this kernel; use 5.10 or later with CONFIG_TRACEPOINTS=y";
  }
  const std::string module = kernel.ModuleWithoutTypes(group.variants.front().tracepoint);
  if (!module.empty()) {
    return absl::StrCat("the kernel has the module ", module,
                        " but no description of its types; use 5.11 or later with "
                        "CONFIG_DEBUG_INFO_BTF_MODULES=y");
  }
  return "load the filesystem's module before the agent starts, or use a newer kernel; hosts "
         "without that filesystem need nothing";
}

// Whether the verifier takes the programs can only be seen by loading them. The tables are small
// for that, and nothing is attached.
CapabilityLine Programs(const KernelBtf& kernel) {
  CapabilityLine line;
  line.name = "BPF programs";
  line.meaning = "the kernel accepts them";
  BpfTracerOptions options;
  options.max_stacks = options.max_actors = options.max_acts = options.max_inodes = 64;
  options.max_pages = options.max_rows = options.max_bios = 64;
  auto loaded = LoadedPrograms::Load(options, kernel);
  if (!loaded.ok()) {
    line.state = State::kMissing;
    line.cost = "nothing can be traced";
    line.remedy = std::string(loaded.status().message());
  }
  return line;
}

}  // namespace

absl::StatusOr<std::vector<CapabilityLine>> CheckKernel() {
  std::vector<CapabilityLine> lines = {Privileges(), Jit(), Symbols()};
  CapabilityLine btf;
  btf.name = "BTF";
  btf.meaning = "the kernel describes its own types, so that one program fits all kernels";
  absl::StatusOr<KernelBtf> kernel = KernelBtf::Load();
  if (!kernel.ok()) {
    btf.state = State::kMissing;
    btf.cost = "nothing can be traced";
    btf.remedy = std::string(kernel.status().message());
    lines.push_back(std::move(btf));
    return lines;
  }
  lines.push_back(std::move(btf));
  for (const ProgramGroup& group : AllPrograms()) {
    if (!Applies(group, *kernel)) continue;
    CapabilityLine line;
    line.name = absl::StrCat("hook ", group.variants.front().tracepoint);
    line.meaning = group.meaning;
    if (ChooseVariant(group, *kernel) == nullptr) {
      line.state = group.required ? State::kMissing : State::kDegraded;
      line.cost = group.cost;
      line.remedy = RemedyFor(group, *kernel);
    }
    lines.push_back(std::move(line));
  }
  const bool ready = std::none_of(lines.begin(), lines.end(), [](const CapabilityLine& line) {
    return line.state == State::kMissing;
  });
  if (ready) lines.push_back(Programs(*kernel));
  return lines;
}

}  // namespace fleetblame::agent
