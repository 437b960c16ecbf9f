// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/loader.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/capability.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "bpf/fleetblame_abi.h"
// The skeleton uses the types above.
#include "bpf/fleetblame_bpf.skel.h"
#include "bpf/fleetblame_plain_bpf.skel.h"
#include "node-agent/tracer/bpf/host_info.h"
#include "node-agent/tracer/bpf/privileges.h"
#include "node-agent/tracer/bpf/programs.h"
#include "node-agent/tracer/bpf/tracepoint_record.h"

namespace fleetblame::agent {
namespace {

constexpr size_t kMaxMessages = 16384;
constexpr uint32_t kLeastPageCalm = 1024;
constexpr uint32_t kLeastSampleStep = 128;
thread_local std::string* message_sink = nullptr;

int TakeMessage(libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG || message_sink == nullptr) return 0;
  char line[512];
  int size = vsnprintf(line, sizeof(line), format, arguments);
  if (message_sink->size() > kMaxMessages) message_sink->erase(0, kMaxMessages / 2);
  message_sink->append(line);
  return size;
}

absl::Status Refusal(int error, const char* what, const std::string& messages) {
  std::string said = messages.empty() ? "" : absl::StrCat(" (", messages, ")");
  if (error == EPERM || error == EACCES) {
    if (absl::Status why = CheckPrivileges(); !why.ok()) return why;
    if (error == EPERM) {
      return absl::PermissionDeniedError(absl::StrCat(
          what, ": the kernel refuses BPF here", said,
          "; run outside of a container that filters bpf(), with CAP_BPF and CAP_PERFMON"));
    }
  }
  if (error == ENOMEM || error == E2BIG) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": ", std::strerror(error), said,
        "; raise RLIMIT_MEMLOCK or the memory limit of this service, or make the tables smaller"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": ", std::strerror(error), said,
                   "; this kernel cannot carry the BPF tracer: see --check"));
}

// From 6.1 on the kernel does not run a raw tracepoint's program on a CPU that is running it
// already.
bool HooksNeverNest() {
  utsname name{};
  int major = 0;
  int minor = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
  return std::pair(major, minor) >= std::pair(6, 1);
}

// Where programs that read records find what they need. What is missing stays 0: they are then not
// chosen.
void FindRecordFields(fb_config* config) {
  auto commit = TracepointRecord("jbd2", "jbd2_start_commit");
  config->record.commit_dev = commit["dev"];
  config->record.commit_tid = commit["transaction"];
  auto buffer = TracepointRecord("xfs", "xfs_trans_log_buf");
  config->record.xfs_buf_dev = buffer["dev"];
  config->record.xfs_buf_block = buffer["buf_bno"];
  config->record.xfs_buf_bytes = buffer["buf_len"];
  auto transaction = TracepointRecord("xfs", "xfs_trans_commit");
  config->record.xfs_trans_dev = transaction["dev"];
  config->record.xfs_trans_flags = transaction["flags"];
}

// Rows of its own for each CPU: 200 kB of memory on small machines, less per CPU on large ones.
uint32_t HotRows(uint32_t cpus) { return cpus <= 16 ? 64 : cpus <= 64 ? 32 : 16; }

// The skeleton over one of the two objects, which have the same maps, programs and variables.
fleetblame_bpf* Open(bool compare_and_swap) {
  if (compare_and_swap) return fleetblame_bpf__open();
  auto* skeleton = static_cast<fleetblame_bpf*>(std::calloc(1, sizeof(fleetblame_bpf)));
  if (skeleton == nullptr) return nullptr;
  int error = fleetblame_bpf__create_skeleton(skeleton);
  if (error == 0) {
    skeleton->skeleton->data = fleetblame_plain_bpf__elf_bytes(&skeleton->skeleton->data_sz);
    error = bpf_object__open_skeleton(skeleton->skeleton, nullptr);
  }
  if (error == 0) return skeleton;
  fleetblame_bpf__destroy(skeleton);
  errno = -error;
  return nullptr;
}

}  // namespace

LibbpfMessages::LibbpfMessages() {
  libbpf_set_print(TakeMessage);
  message_sink = &text_;
}

LibbpfMessages::~LibbpfMessages() { message_sink = nullptr; }

std::string LibbpfMessages::Tail() const {
  std::string tail = text_.size() > 400 ? text_.substr(text_.size() - 400) : text_;
  std::replace(tail.begin(), tail.end(), '\n', ' ');
  return tail;
}

std::string LastVerifierError(const std::string& log) {
  std::string last;
  for (absl::string_view line : absl::StrSplit(log, '\n', absl::SkipWhitespace())) {
    const bool sum = absl::StartsWith(line, "processed ") || absl::StartsWith(line, "subprog ") ||
                     absl::StartsWith(line, "verification time ") ||
                     absl::StartsWith(line, "stack depth ");
    if (sum) continue;
    last = std::string(absl::StripAsciiWhitespace(line));
  }
  return last;
}

bool KernelHasCompareAndSwap() {
  const struct bpf_insn program[] = {
      {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .src_reg = 0, .off = -8, .imm = 0},
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 0},
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .src_reg = 0, .off = 0, .imm = 1},
      {.code = BPF_STX | BPF_ATOMIC | BPF_DW,
       .dst_reg = BPF_REG_10,
       .src_reg = BPF_REG_1,
       .off = -8,
       .imm = BPF_CMPXCHG},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
  };
  int fd = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "fb_probe", "GPL", program,
                         std::size(program), nullptr);
  if (fd < 0) return false;
  close(fd);
  return true;
}

absl::Status LoadedPrograms::Prepare(const BpfTracerOptions& options, const KernelBtf& kernel,
                                     const std::string& only) {
  LibbpfMessages messages;
  const bool swap = KernelHasCompareAndSwap();
  skeleton_ = Open(swap);
  if (skeleton_ == nullptr) {
    return Refusal(errno, "read the BPF programs", messages.Tail());
  }
  bpf_object* object = skeleton_->obj;

  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object) bpf_program__set_autoload(program, false);
  for (const ProgramGroup& group : AllPrograms()) {
    if (!Applies(group, kernel)) continue;
    const ProgramVariant* variant = ChooseVariant(group, kernel);
    if (variant == nullptr) {
      if (group.required) {
        return absl::FailedPreconditionError(
            absl::StrCat("the kernel has no tracepoint for ", group.meaning, " (", group.ability,
                         "), so ", group.cost, "; this kernel cannot carry the BPF tracer"));
      }
      limitations_.push_back(
          absl::StrCat(group.ability, ": no such hook in this kernel; ", group.cost, "."));
      continue;
    }
    program = bpf_object__find_program_by_name(object, variant->name);
    if (program == nullptr) {
      return absl::InternalError(absl::StrCat("no BPF program named ", variant->name));
    }
    bpf_program__set_autoload(program, only.empty() || only == variant->name);
  }

  auto size = [](bpf_map* map, uint32_t entries) { bpf_map__set_max_entries(map, entries); };
  size(skeleton_->maps.stack_ids, options.max_stacks);
  size(skeleton_->maps.stacks, options.max_stacks);
  size(skeleton_->maps.free_stacks, options.max_stacks);
  size(skeleton_->maps.actor_ids, options.max_actors);
  size(skeleton_->maps.actors, options.max_actors);
  size(skeleton_->maps.free_actors, options.max_actors);
  size(skeleton_->maps.act_ids, options.max_acts);
  size(skeleton_->maps.acts, options.max_acts);
  size(skeleton_->maps.free_acts, options.max_acts);
  size(skeleton_->maps.inodes, options.max_inodes);
  size(skeleton_->maps.files, options.max_inodes);
  size(skeleton_->maps.free_files, options.max_inodes);
  size(skeleton_->maps.pages, std::max(options.max_pages / FB_GROUP_PAGES, 64u));
  // Bios go to an array where the kernel has compare-and-swap, and from there, or before 5.12, to a
  // hash map.
  uint32_t slots = std::bit_floor(options.max_bios);
  size(skeleton_->maps.bio_buckets, swap ? slots / FB_BIO_WAYS : 1);
  size(skeleton_->maps.origins, swap ? slots : 1);
  size(skeleton_->maps.bios, swap ? std::max(slots / 8, 64u) : options.max_bios);
  skeleton_->rodata->config.bio_buckets = swap ? slots / FB_BIO_WAYS : 0;
  const uint32_t cpus = std::max(1, libbpf_num_possible_cpus());
  const uint32_t hot_rows = HooksNeverNest() ? HotRows(cpus) : 0;
  size(skeleton_->maps.hot_rows, std::max(cpus * 2 * hot_rows, 1u));
  skeleton_->rodata->config.hot_rows = hot_rows;
  skeleton_->rodata->config.preemptible = kernel.TracepointsArePreemptible();
  size(skeleton_->maps.rows0, options.max_rows);
  size(skeleton_->maps.rows1, options.max_rows);

  if (options.sample_above != 0) {
    skeleton_->rodata->config.sample_ns = 1'000'000'000 / options.sample_above;
    // What a CPU may dirty in a second it may dirty at once: most bursts end before.
    skeleton_->rodata->config.page_calm = std::max(kLeastPageCalm, options.sample_above);
    skeleton_->rodata->config.sample_step = std::max(kLeastSampleStep, options.sample_above / 16);
  }
  skeleton_->rodata->config.blind_journal =
      !kernel.TracepointArguments("jbd2_start_commit").has_value();
  skeleton_->rodata->config.xfs_records =
      !kernel.TracepointArguments("xfs_trans_log_buf").has_value();
  FindRecordFields(&skeleton_->rodata->config);
  skeleton_->rodata->config.in_place = kernel.HasFunction("bpf_rdonly_cast");
  skeleton_->rodata->config.page_shift = __builtin_ctzl(sysconf(_SC_PAGESIZE));
  skeleton_->rodata->config.max_files = options.max_files * 4;  // the largest are chosen later
  if (auto bit = kernel.Enumerator("BIO_PAGE_PINNED"); bit.has_value() && *bit >= 0 && *bit < 16) {
    skeleton_->rodata->config.bio_pinned = 1u << *bit;
  }
  if (auto bit = kernel.Enumerator("BIO_TRACE_COMPLETION");
      bit.has_value() && *bit >= 0 && *bit < 16) {
    skeleton_->rodata->config.bio_queued = 1u << *bit;
  }
  std::string controller = CgroupV1Controller();
  if (!controller.empty()) {
    auto index = kernel.Enumerator(absl::StrCat(controller, "_cgrp_id"));
    if (index.has_value()) skeleton_->rodata->config.cgroup_v1_subsystem = *index;
  }
  if (auto symbols = OpenSymbols(); symbols.ok()) {
    const std::string encrypt = "blk_crypto_fallback_encrypt_endio";
    const std::string buffer = "end_bio_bh_io_sync";
    auto found = FindFunctions(**symbols, {encrypt, buffer});
    skeleton_->rodata->config.encrypt_end = found[encrypt].first;
    skeleton_->rodata->config.buffer_end = found[buffer].first;
  }
  // Functions that say what a stack is about.
  if (auto symbols = OpenSymbols(); symbols.ok()) {
    const std::map<std::string, uint64_t> flags = {
        {"btrfs_commit_transaction", FB_STACK_FOR_ALL},
        {"btrfs_run_delayed_refs", FB_STACK_FOR_ALL},
        {"f2fs_write_checkpoint", FB_STACK_FOR_ALL},
        {"blkdev_write_iter", FB_STACK_RAW_DEVICE},
    };
    std::vector<std::string> names;
    for (const auto& [name, flag] : flags) names.push_back(name);
    int next = 0;
    for (const auto& [name, range] : FindFunctions(**symbols, names)) {
      if (next == FB_MARKED_FUNCTIONS) break;
      auto& marked = skeleton_->rodata->config.marked[next++];
      marked.first = range.first;
      marked.last = range.last;
      marked.flag = flags.at(name);
    }
  }
  skeleton_->data->live.window = 1;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadedPrograms>> LoadedPrograms::Load(
    const BpfTracerOptions& options, const KernelBtf& kernel, const std::string& only,
    std::string* verifier_log) {
  for (bool with_log : {true, false}) {
    std::unique_ptr<LoadedPrograms> loaded(new LoadedPrograms());
    if (absl::Status status = loaded->Prepare(options, kernel, only); !status.ok()) return status;
    if (with_log) loaded->KeepVerifierLog();
    LibbpfMessages messages;
    int error = fleetblame_bpf__load(loaded->skeleton_);
    if (verifier_log != nullptr && with_log) *verifier_log = loaded->verifier_log_.get();
    if (error == 0) {
      loaded->verifier_log_.reset();
      return loaded;
    }
    // The log was too small. That alone is no reason to give up.
    if (error == -ENOSPC && with_log) continue;
    if (absl::Status refusal = loaded->VerifierRefusal(); !refusal.ok()) return refusal;
    return Refusal(-error, "load the BPF programs", messages.Tail());
  }
  return absl::InternalError("load the BPF programs: not reached");
}

void LoadedPrograms::KeepVerifierLog() {
  // This level brings errors and sums, and not the steps, which are megabytes.
  constexpr int kErrorsAndSums = 4;
  // Little of it is ever touched: this much is addresses, not memory.
  constexpr size_t kLogBytes = 16 << 20;
  verifier_log_ = std::make_unique_for_overwrite<char[]>(kLogBytes);
  verifier_log_[0] = '\0';
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) {
    if (!bpf_program__autoload(program)) continue;
    bpf_program__set_log_buf(program, verifier_log_.get(), kLogBytes);
    bpf_program__set_log_level(program, kErrorsAndSums);
  }
}

absl::Status LoadedPrograms::VerifierRefusal() const {
  if (verifier_log_ == nullptr) return absl::OkStatus();
  bpf_program* program = nullptr;
  // They are loaded in this order, so the first that is not loaded is the one.
  bpf_object__for_each_program(program, skeleton_->obj) {
    if (!bpf_program__autoload(program) || bpf_program__fd(program) >= 0) continue;
    std::string reason = LastVerifierError(verifier_log_.get());
    if (reason.empty()) break;
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel's verifier refused program ", bpf_program__name(program), ": ",
                     reason, "; this kernel cannot carry the BPF tracer, please report it"));
  }
  return absl::OkStatus();
}

absl::Status LoadedPrograms::Attach() { return AttachGroups(/*stacked=*/false); }

absl::Status LoadedPrograms::AttachStacked() {
  if (stacked_) return absl::OkStatus();
  stacked_ = true;
  return AttachGroups(/*stacked=*/true);
}

absl::Status LoadedPrograms::AttachGroups(bool stacked) {
  LibbpfMessages messages;
  constexpr int kCommitHooks = 3;  // begin, logging, end
  int commits = 0;
  // The end of an IO first: what begins must never end unseen.
  for (const ProgramGroup& group : AllPrograms()) {
    if (group.only_stacked != stacked) continue;
    for (const ProgramVariant& variant : group.variants) {
      bpf_program* program = bpf_object__find_program_by_name(skeleton_->obj, variant.name);
      if (program == nullptr || bpf_program__fd(program) < 0) continue;
      bpf_link* link = bpf_program__attach(program);
      if (link == nullptr) {
        if (group.required) {
          return Refusal(errno, absl::StrCat("attach to ", variant.tracepoint).c_str(),
                         messages.Tail());
        }
        limitations_.push_back(absl::StrCat(group.ability, ": the kernel refused the hook (",
                                            std::strerror(errno), "); ", group.cost, "."));
        continue;
      }
      links_.push_back(link);
      if (variant.access == Access::kRecord && absl::StartsWith(variant.name, "jbd2_")) ++commits;
    }
  }
  if (!stacked) skeleton_->data->live.sees_commits = commits == kCommitHooks;
  return absl::OkStatus();
}

uint64_t LoadedPrograms::MissedHooks() const {
  uint64_t missed = 0;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) {
    int fd = bpf_program__fd(program);
    if (fd < 0) continue;
    bpf_prog_info info = {};
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &size) == 0) missed += info.recursion_misses;
  }
  return missed;
}

LoadedPrograms::~LoadedPrograms() {
  for (bpf_link* link : links_) bpf_link__destroy(link);
  if (skeleton_ != nullptr) fleetblame_bpf__destroy(skeleton_);
}

}  // namespace fleetblame::agent
