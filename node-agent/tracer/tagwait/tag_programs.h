// SPDX-License-Identifier: Apache-2.0
//
// Brings bpf/tagwait.bpf.c into the kernel by the best way that this kernel has to see tag waits:
// its own tracepoint, fentry or a kprobe in the slow path of blk_mq_get_tag(), or inference at
// sched_switch. Which there are is asked of BTF, of kallsyms and of the kernel by trying.
//
// The hook that sees waits end is attached when somebody waits, and detached when nobody has waited
// for a minute: others run through it too.
//
// Threading: one thread; a second one, of this object, attaches and detaches.
// Errors: FAILED_PRECONDITION when no way is left; the message says why for each.
#ifndef NODE_AGENT_TRACER_TAGWAIT_TAG_PROGRAMS_H_
#define NODE_AGENT_TRACER_TAGWAIT_TAG_PROGRAMS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "proto/fleetblame/v1/tagwait.pb.h"

struct bpf_link;
struct bpf_object;
struct bpf_program;
struct ring_buffer;
struct fb_config;
struct tagwait_bpf;

namespace fleetblame::agent {

struct TagProgramOptions {
  // Only this source; UNSPECIFIED = the best.
  v1::TagWaitSource source = v1::TAG_WAIT_SOURCE_UNSPECIFIED;
  // Inference may be the best: it runs at every context switch, so somebody has to want it.
  bool infer = false;
  // The object whose tables of stacks and actors are used, with its settings; null = own tables.
  bpf_object* tables = nullptr;
  const fb_config* config = nullptr;
  // Loaded, but not attached: for a look at what the kernel says.
  bool attach = true;
  // Each wait that ends is a struct fb_tag_ended in the ring StreamFd() too, for tests.
  bool stream = false;
};

class TagPrograms {
 public:
  static absl::StatusOr<std::unique_ptr<TagPrograms>> Load(const TagProgramOptions& options,
                                                           const KernelBtf& kernel);
  ~TagPrograms();
  TagPrograms(const TagPrograms&) = delete;
  TagPrograms& operator=(const TagPrograms&) = delete;

  tagwait_bpf* skeleton() const { return skeleton_; }
  v1::TagWaitSource source() const { return source_; }
  // Why better sources are not used, one sentence each.
  const std::vector<std::string>& refusals() const { return refusals_; }
  // The kernel's own tables, for tests: waits under way (struct fb_tag_wait by thread), and the
  // ring.
  int WaitsFd() const;
  int StreamFd() const;
  // The hook for the end of waits is attached.
  bool SeesEnds() const;
  // How often the programs ran; counted only while BPF statistics are on.
  uint64_t Runs() const;
  // Hooks that the kernel skipped because a program was running already, since the start.
  uint64_t Missed() const;

 private:
  TagPrograms() = default;
  absl::Status Try(const TagProgramOptions& options, const KernelBtf& kernel,
                   const std::vector<std::string>& programs);
  void Refused(v1::TagWaitSource source, const absl::Status& status);
  void Release();

  absl::Status StartEnds(bpf_program* program);
  void AttachWhileNeeded();
  static int Wanted(void* self, void* data, size_t size);

  tagwait_bpf* skeleton_ = nullptr;
  bpf_link* begin_ = nullptr;
  bpf_program* end_program_ = nullptr;
  ring_buffer* wake_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread ends_;
  v1::TagWaitSource source_ = v1::TAG_WAIT_SOURCE_UNSPECIFIED;
  std::vector<std::string> refusals_;
};

// "the kernel's tracepoint block_rq_tag_wait", "a kprobe", ...
std::string TagSourceText(v1::TagWaitSource source);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_TAGWAIT_TAG_PROGRAMS_H_
