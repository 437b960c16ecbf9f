// SPDX-License-Identifier: Apache-2.0
//
// Brings the BPF programs into the kernel: sizes, settings, choice of variants, load, attach; and
// turns the ways in which that fails into sentences with a way out.
//
// Threading: one thread. libbpf's messages are collected for the time of a call.
// Errors: as bpf_tracer.h says.
#ifndef NODE_AGENT_TRACER_BPF_LOADER_H_
#define NODE_AGENT_TRACER_BPF_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/bpf/kernel_btf.h"

struct bpf_link;
struct fleetblame_bpf;

namespace fleetblame::agent {

// Collects what libbpf says on this thread while it lives.
class LibbpfMessages {
 public:
  LibbpfMessages();
  ~LibbpfMessages();
  LibbpfMessages(const LibbpfMessages&) = delete;
  LibbpfMessages& operator=(const LibbpfMessages&) = delete;
  // The last lines that are about something.
  std::string Tail() const;

 private:
  std::string text_;
};

// The last line of a verifier's log that is not a sum.
std::string LastVerifierError(const std::string& log);

// Whether the kernel takes programs with a compare-and-swap (from 5.12 on): tries one.
bool KernelHasCompareAndSwap();

// The programs in the kernel; they leave it with this object.
class LoadedPrograms {
 public:
  // For a look at what the kernel says of one program: `only` names it ("" = all), and
  // `verifier_log` gets its words, also when it is refused.
  static absl::StatusOr<std::unique_ptr<LoadedPrograms>> Load(const BpfTracerOptions& options,
                                                              const KernelBtf& kernel,
                                                              const std::string& only = "",
                                                              std::string* verifier_log = nullptr);
  ~LoadedPrograms();
  LoadedPrograms(const LoadedPrograms&) = delete;
  LoadedPrograms& operator=(const LoadedPrograms&) = delete;

  // Starts tracing.
  absl::Status Attach();
  // Attaches what only stacked devices need, if it is not yet.
  absl::Status AttachStacked();

  fleetblame_bpf* skeleton() const { return skeleton_; }
  // What is missing and what that costs, one sentence each.
  const std::vector<std::string>& limitations() const { return limitations_; }
  // Hooks that the kernel skipped because a program was running already, since the start.
  uint64_t MissedHooks() const;

 private:
  LoadedPrograms() = default;

  absl::Status AttachGroups(bool stacked);
  absl::Status Prepare(const BpfTracerOptions& options, const KernelBtf& kernel,
                       const std::string& only);
  // Asks the verifier for a few words on each program: on refusal they tell why.
  void KeepVerifierLog();
  // Names the program that the verifier refused, and why; OK when it was something else.
  absl::Status VerifierRefusal() const;

  fleetblame_bpf* skeleton_ = nullptr;
  std::unique_ptr<char[]> verifier_log_;
  std::vector<bpf_link*> links_;
  bool stacked_ = false;
  std::vector<std::string> limitations_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_LOADER_H_
