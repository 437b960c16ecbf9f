// SPDX-License-Identifier: Apache-2.0
//
// Loads each BPF program alone, without attaching it, and prints what the running kernel's verifier
// says of it: the instructions it looked at, the stack it needs, or why it is refused.
//
//   verify_programs [PROGRAM...]
//
// Exit status: 0 all are accepted, 1 not all.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "node-agent/tracer/bpf/loader.h"
#include "node-agent/tracer/bpf/programs.h"

namespace fleetblame::agent {
namespace {

int Run(const std::set<std::string>& wanted) {
  absl::StatusOr<KernelBtf> kernel = KernelBtf::Load();
  if (!kernel.ok()) {
    std::fprintf(stderr, "%s\n", std::string(kernel.status().message()).c_str());
    return 1;
  }
  BpfTracerOptions options;
  options.max_stacks = options.max_actors = options.max_acts = options.max_inodes = 64;
  options.max_pages = options.max_rows = options.max_bios = 64;
  options.sample_above = 10000;  // with all that can be asked for
  bool good = true;
  for (const ProgramGroup& group : AllPrograms()) {
    if (!Applies(group, *kernel)) continue;
    const ProgramVariant* variant = ChooseVariant(group, *kernel);
    if (variant == nullptr) {
      std::printf("%-28s no such hook\n", group.variants.front().name);
      continue;
    }
    if (!wanted.empty() && !wanted.contains(variant->name)) continue;
    std::string said;
    auto start = std::chrono::steady_clock::now();
    auto loaded = LoadedPrograms::Load(options, *kernel, variant->name, &said);
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!loaded.ok()) said = absl::StrCat(loaded.status().message(), "\n", said);
    good = good && loaded.ok();
    std::printf("%-28s %s %.1f s: %s\n", variant->name, loaded.ok() ? "ok" : "REFUSED", seconds,
                absl::StrReplaceAll(said, {{"\n", "; "}}).c_str());
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace fleetblame::agent

int main(int argc, char** argv) {
  return fleetblame::agent::Run(std::set<std::string>(argv + 1, argv + argc));
}
