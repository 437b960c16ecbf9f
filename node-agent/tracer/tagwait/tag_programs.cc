// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/tagwait/tag_programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "bpf/tagwait_abi.h"
// The skeletons use the types above.
#include "bpf/tagwait_bpf.skel.h"
#include "bpf/tagwait_plain_bpf.skel.h"
#include "node-agent/tracer/bpf/host_info.h"
#include "node-agent/tracer/bpf/loader.h"

namespace fleetblame::agent {
namespace {

constexpr const char* kTracepoint = "block_rq_tag_wait";
constexpr const char* kPrepare = "prepare_to_wait_exclusive";
constexpr const char* kFinish = "finish_wait";
constexpr const char* kGetTag = "blk_mq_get_tag";
// Stacks and actors of an object that does not share another's tables.
constexpr uint32_t kOwnTable = 4096;

constexpr size_t kLogBytes = 1 << 20;
constexpr uint32_t kStreamBytes = 1 << 22;
// How long nobody waits before the hook for the end is taken away.
constexpr std::chrono::seconds kQuiet{60};
constexpr int kPollMs = 1000;

// The parts of bpf/maps.bpf.h that these programs use.
const std::set<std::string>& SharedMaps() {
  static const auto* const kMaps = new std::set<std::string>{
      "stack_ids", "stacks",     "free_stacks", "actor_ids", "actors",      "free_actors",
      "counters",  "known_sets", "scratches",   "blanks",    "actor_cache", "scratch_uses"};
  return *kMaps;
}

struct Way {
  v1::TagWaitSource source;
  std::vector<std::string> programs;
  std::string missing;  // why this kernel cannot have it
};

std::string TracepointProgram(const KernelBtf& kernel) {
  auto arguments = kernel.TracepointArgumentsAnywhere(kTracepoint);
  if (!arguments.has_value() || arguments->size() < 2) return "";
  if ((*arguments)[0] != "request_queue" || (*arguments)[1] != "blk_mq_hw_ctx") return "";
  if (arguments->size() == 2) return "tag_event_short";
  return arguments->size() == 4 ? "tag_event" : "";
}

constexpr char kNotAsked[] = "it runs at every context switch; --infer-tag-waits=true asks for it";

std::vector<Way> WaysOf(const KernelBtf& kernel,
                        const std::map<std::string, FunctionRange>& functions, bool infer) {
  const bool fentry = kernel.HasFunction(kPrepare) && kernel.HasFunction(kFinish);
  const bool known = functions.contains(kPrepare) && functions.contains(kFinish);
  const std::string unknown = absl::StrCat("kallsyms does not tell where ", kPrepare, " is");
  const std::string event = TracepointProgram(kernel);
  const std::string no_event = absl::StrCat("this kernel has no tracepoint ", kTracepoint);
  const std::string no_fentry = absl::StrCat("BTF does not describe ", kPrepare);
  const std::string no_get_tag =
      functions.contains(kGetTag) ? ""
                                  : absl::StrCat("kallsyms does not tell where ", kGetTag, " is");
  // A kprobe runs without being preempted, so the kernel never skips it; and it gets along with
  // other hooks on its function, which matters for the end, whose hook comes and goes.
  std::vector<Way> ways;
  ways.push_back({v1::TAG_WAIT_SOURCE_TRACEPOINT,
                  {event, "tag_finish_kprobe"},
                  event.empty() ? no_event : (known ? "" : unknown)});
  ways.push_back({v1::TAG_WAIT_SOURCE_TRACEPOINT,
                  {event, "tag_finish_fentry"},
                  event.empty() ? no_event : (fentry ? "" : no_fentry)});
  ways.push_back({v1::TAG_WAIT_SOURCE_FENTRY,
                  {"tag_prepare_fentry", known ? "tag_finish_kprobe" : "tag_finish_fentry"},
                  fentry ? no_get_tag : no_fentry});
  ways.push_back({v1::TAG_WAIT_SOURCE_KPROBE,
                  {"tag_prepare_kprobe", "tag_finish_kprobe"},
                  known ? no_get_tag : unknown});
  if (kernel.TracepointsArePreemptible()) std::swap(ways[2], ways[3]);
  ways.push_back({v1::TAG_WAIT_SOURCE_INFERRED, {"tag_switch"}, infer ? no_get_tag : kNotAsked});
  return ways;
}

tagwait_bpf* OpenSkeleton(bool compare_and_swap) {
  if (compare_and_swap) return tagwait_bpf__open();
  auto* skeleton = static_cast<tagwait_bpf*>(std::calloc(1, sizeof(tagwait_bpf)));
  if (skeleton == nullptr) return nullptr;
  int error = tagwait_bpf__create_skeleton(skeleton);
  if (error == 0) {
    skeleton->skeleton->data = tagwait_plain_bpf__elf_bytes(&skeleton->skeleton->data_sz);
    error = bpf_object__open_skeleton(skeleton->skeleton, nullptr);
  }
  if (error == 0) return skeleton;
  tagwait_bpf__destroy(skeleton);
  errno = -error;
  return nullptr;
}

// Makes the tables that are not shared small, and leaves out what nobody uses.
absl::Status ChooseMaps(bpf_object* object, bpf_object* tables) {
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object) {
    const std::string name = bpf_map__name(map);
    if (bpf_map__is_internal(map) || absl::StartsWith(name, "tag_")) continue;
    if (!SharedMaps().contains(name)) {
      bpf_map__set_autocreate(map, false);
      continue;
    }
    if (tables == nullptr) {
      if (bpf_map__max_entries(map) == 1024) bpf_map__set_max_entries(map, kOwnTable);
      continue;
    }
    bpf_map* other = bpf_object__find_map_by_name(tables, name.c_str());
    if (other == nullptr || bpf_map__fd(other) < 0) {
      return absl::InternalError(absl::StrCat("no table ", name, " to share"));
    }
    if (bpf_map__reuse_fd(map, bpf_map__fd(other)) != 0) {
      return absl::InternalError(absl::StrCat("share table ", name, ": ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

void FillFreeIds(bpf_map* map, uint32_t first) {
  for (uint32_t id = first; id < kOwnTable; ++id) {
    bpf_map_update_elem(bpf_map__fd(map), nullptr, &id, BPF_ANY);
  }
}

uint32_t Flag(const KernelBtf& kernel, const char* name, int64_t usual) {
  return static_cast<uint32_t>(kernel.Enumerator(name).value_or(usual));
}

void Configure(tagwait_bpf* skeleton, const KernelBtf& kernel, const fb_config* shared,
               const std::map<std::string, FunctionRange>& functions) {
  if (shared != nullptr) std::memcpy(&skeleton->rodata->config, shared, sizeof(fb_config));
  auto& config = skeleton->rodata->config;
  // Everything here is rare: copies will do, also where memory could be read in place.
  config.in_place = 0;
  if (shared == nullptr) config.preemptible = kernel.TracepointsArePreemptible();
  auto& tags = skeleton->rodata->tag_config;
  if (auto place = functions.find(kGetTag); place != functions.end()) {
    tags.get_tag_first = place->second.first;
    tags.get_tag_last = place->second.last;
  }
  // A bit number that was a macro until it became an enumerator.
  tags.queue_dying = 1u << (Flag(kernel, "QUEUE_FLAG_DYING", 1) & 31);
  tags.disk_dead = 1u << 2;
  tags.queue_shared = Flag(kernel, "BLK_MQ_F_TAG_QUEUE_SHARED", 2);
  tags.host_wide = Flag(kernel, "BLK_MQ_F_TAG_HCTX_SHARED", 8);
  tags.reserved_flag = Flag(kernel, "BLK_MQ_REQ_RESERVED", 2);
}

// The first that libbpf said, which the others follow from, as one clause; without it the error.
std::string ReasonFrom(absl::string_view messages, int error) {
  constexpr absl::string_view kPrefix = "libbpf: ";
  const size_t first = messages.find(kPrefix);
  if (first == absl::string_view::npos) return std::strerror(error);
  messages.remove_prefix(first + kPrefix.size());
  return std::string(absl::StripAsciiWhitespace(messages.substr(0, messages.find(kPrefix))));
}

std::map<std::string, FunctionRange> Functions() {
  auto symbols = OpenSymbols();
  if (!symbols.ok()) return {};
  return FindFunctions(**symbols, {kPrepare, kFinish, kGetTag});
}

}  // namespace

std::string TagSourceText(v1::TagWaitSource source) {
  switch (source) {
    case v1::TAG_WAIT_SOURCE_TRACEPOINT:
      return "the kernel's tracepoint block_rq_tag_wait";
    case v1::TAG_WAIT_SOURCE_FENTRY:
      return "fentry on prepare_to_wait_exclusive";
    case v1::TAG_WAIT_SOURCE_KPROBE:
      return "a kprobe on prepare_to_wait_exclusive";
    case v1::TAG_WAIT_SOURCE_INFERRED:
      return "inference from sleeping threads";
    default:
      return "none";
  }
}

absl::StatusOr<std::unique_ptr<TagPrograms>> TagPrograms::Load(const TagProgramOptions& options,
                                                               const KernelBtf& kernel) {
  std::unique_ptr<TagPrograms> programs(new TagPrograms());
  const bool infer = options.infer || options.source == v1::TAG_WAIT_SOURCE_INFERRED;
  for (const Way& way : WaysOf(kernel, Functions(), infer)) {
    if (options.source != v1::TAG_WAIT_SOURCE_UNSPECIFIED && options.source != way.source) continue;
    absl::Status status = way.missing.empty() ? programs->Try(options, kernel, way.programs)
                                              : absl::NotFoundError(way.missing);
    if (status.ok()) {
      programs->source_ = way.source;
      return programs;
    }
    programs->Release();
    programs->Refused(way.source, status);
  }
  return absl::FailedPreconditionError(absl::StrCat("tag waits cannot be seen on this kernel (",
                                                    absl::StrJoin(programs->refusals_, "; "), ")"));
}

// One text for each source, whose ways differ only in how the end is seen.
void TagPrograms::Refused(v1::TagWaitSource source, const absl::Status& status) {
  const std::string name = TagSourceText(source);
  const std::string why(status.message());
  if (refusals_.empty() || !absl::StartsWith(refusals_.back(), absl::StrCat(name, ": "))) {
    refusals_.push_back(absl::StrCat(name, ": ", why));
  } else if (!absl::StrContains(refusals_.back(), why)) {
    absl::StrAppend(&refusals_.back(), ", and ", why);
  }
}

absl::Status TagPrograms::Try(const TagProgramOptions& options, const KernelBtf& kernel,
                              const std::vector<std::string>& names) {
  LibbpfMessages messages;
  skeleton_ = OpenSkeleton(KernelHasCompareAndSwap());
  if (skeleton_ == nullptr) {
    return absl::InternalError(absl::StrCat("read the BPF programs: ", std::strerror(errno)));
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) bpf_program__set_autoload(program, false);
  std::vector<bpf_program*> chosen;
  for (const std::string& name : names) {
    program = bpf_object__find_program_by_name(skeleton_->obj, name.c_str());
    if (program == nullptr) return absl::InternalError(absl::StrCat("no BPF program ", name));
    bpf_program__set_autoload(program, true);
    chosen.push_back(program);
  }
  if (auto status = ChooseMaps(skeleton_->obj, options.tables); !status.ok()) return status;
  Configure(skeleton_, kernel, options.config, Functions());
  if (options.stream) {
    skeleton_->rodata->tag_config.stream = 1;
    bpf_map__set_max_entries(skeleton_->maps.tag_stream, kStreamBytes);
  }
  // Errors and sums, and not the steps, which are megabytes.
  const auto log = std::make_unique_for_overwrite<char[]>(kLogBytes);
  log[0] = '\0';
  for (bpf_program* each : chosen) {
    bpf_program__set_log_buf(each, log.get(), kLogBytes);
    bpf_program__set_log_level(each, 4);
  }
  if (int error = tagwait_bpf__load(skeleton_); error != 0) {
    const std::string why = LastVerifierError(log.get());
    return absl::FailedPreconditionError(absl::StrCat(
        "the kernel refuses it: ", why.empty() ? ReasonFrom(messages.Tail(), -error) : why));
  }
  if (options.tables == nullptr) {
    FillFreeIds(skeleton_->maps.free_stacks, FB_STACK_FIRST);
    FillFreeIds(skeleton_->maps.free_actors, 1);
  }
  if (!options.attach) return absl::OkStatus();
  if (chosen.size() > 1) {
    if (auto status = StartEnds(chosen.back()); !status.ok()) return status;
  }
  begin_ = bpf_program__attach(chosen.front());
  if (begin_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel refuses the hook: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status TagPrograms::StartEnds(bpf_program* program) {
  // Once for certain, so that a kernel that refuses is asked for another way.
  bpf_link* link = bpf_program__attach(program);
  if (link == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel refuses the hook: ", std::strerror(errno)));
  }
  bpf_link__destroy(link);
  end_program_ = program;
  wake_ = ring_buffer__new(bpf_map__fd(skeleton_->maps.tag_wake), Wanted, nullptr, nullptr);
  if (wake_ == nullptr) {
    return absl::InternalError(absl::StrCat("open the ring: ", std::strerror(errno)));
  }
  stop_ = false;
  ends_ = std::thread([this] { AttachWhileNeeded(); });
  return absl::OkStatus();
}

int TagPrograms::Wanted(void*, void*, size_t) { return 0; }

void TagPrograms::AttachWhileNeeded() {
  auto& live = skeleton_->data->tag_live;
  bpf_link* link = nullptr;
  uint64_t begun = 0;
  auto since = std::chrono::steady_clock::now();
  while (!stop_) {
    const int woken = ring_buffer__poll(wake_, kPollMs);
    const auto now = std::chrono::steady_clock::now();
    const uint64_t begun_now = __atomic_load_n(&live.begun, __ATOMIC_RELAXED);
    if (begun_now != std::exchange(begun, begun_now)) since = now;
    if (woken > 0 && link == nullptr) {
      link = bpf_program__attach(end_program_);
      since = now;
      if (link != nullptr) __atomic_store_n(&live.ends_seen, 1, __ATOMIC_RELAXED);
    } else if (link != nullptr && now - since > kQuiet) {
      __atomic_store_n(&live.ends_seen, 0, __ATOMIC_RELAXED);
      bpf_link__destroy(std::exchange(link, nullptr));
    }
  }
  if (link != nullptr) bpf_link__destroy(link);
}

void TagPrograms::Release() {
  if (begin_ != nullptr) bpf_link__destroy(std::exchange(begin_, nullptr));
  stop_ = true;
  if (ends_.joinable()) ends_.join();
  if (wake_ != nullptr) ring_buffer__free(std::exchange(wake_, nullptr));
  if (skeleton_ != nullptr) tagwait_bpf__destroy(skeleton_);
  skeleton_ = nullptr;
}

TagPrograms::~TagPrograms() { Release(); }

int TagPrograms::WaitsFd() const { return bpf_map__fd(skeleton_->maps.tag_waits); }
int TagPrograms::StreamFd() const { return bpf_map__fd(skeleton_->maps.tag_stream); }

bool TagPrograms::SeesEnds() const {
  return __atomic_load_n(&skeleton_->data->tag_live.ends_seen, __ATOMIC_RELAXED) != 0;
}

uint64_t TagPrograms::Runs() const {
  uint64_t runs = 0;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) {
    bpf_prog_info info = {};
    uint32_t size = sizeof(info);
    const int fd = bpf_program__fd(program);
    if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0) runs += info.run_cnt;
  }
  return runs;
}

uint64_t TagPrograms::Missed() const {
  uint64_t missed = 0;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton_->obj) {
    bpf_prog_info info = {};
    uint32_t size = sizeof(info);
    const int fd = bpf_program__fd(program);
    if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0) missed += info.recursion_misses;
  }
  return missed;
}

}  // namespace fleetblame::agent
