// SPDX-License-Identifier: Apache-2.0
#include "common/intent/frame_class.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/absl_view.h"
#include "common/intent/canonical.h"

namespace fleetblame {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); }

bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit);
}

// Modules whose code is never part of what is traced: generated code, and the tracer itself.
bool IsTracerModule(std::string_view module) {
  return module == "bpf" || module == "__builtin__ftrace" || module == "__builtin__kprobe" ||
         module == "ioblame";
}

// "bpf_prog_" and 16 digits of its tag, then perhaps "_" and its name. The kernel has functions of
// its own that begin so, such as bpf_prog_load.
bool IsBpfProgram(std::string_view name) {
  constexpr std::string_view kPrefix = "bpf_prog_";
  constexpr size_t kTagDigits = 16;
  if (!name.starts_with(kPrefix)) return false;
  std::string_view rest = name.substr(kPrefix.size());
  return rest.size() >= kTagDigits &&
         std::all_of(rest.begin(), rest.begin() + kTagDigits, IsHexDigit) &&
         (rest.size() == kTagDigits || rest[kTagDigits] == '_');
}

// "bpf_trampoline_" and a number, with "_" and another one on some kernels.
bool IsBpfTrampoline(std::string_view name) {
  constexpr std::string_view kPrefix = "bpf_trampoline_";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() && IsDigit(name[kPrefix.size()]);
}

bool IsNumbered(std::string_view name, std::string_view stem) {
  return name.starts_with(stem) && AllDigits(name.substr(stem.size()));
}

constexpr std::string_view kTracerPrefixes[] = {
    "__traceiter_",
    "__probestub_",
    "__bpf_trace_",
    "perf_trace_",
    "do_perf_trace_",
    "trace_event_raw_event_",
    "do_trace_event_raw_event_",
    "__SCT__",
    "bpf_dispatcher_",
    "bpf_get_stack",
    "__bpf_get_stack",
    "__bpf_prog_enter",
    "__bpf_prog_exit",
    "stack_trace_save",
    "arch_stack_walk",
    "__x86_indirect_",
};

const absl::flat_hash_set<absl::string_view>& TracerNames() {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      // The way from a tracepoint to its consumers.
      "trace_call_bpf",
      "trace_event_buffer_reserve",
      "trace_event_buffer_commit",
      "perf_tp_event",
      "perf_swevent_event",
      "__perf_event_overflow",
      "perf_event_output_forward",
      "perf_event_output_backward",
      "perf_prepare_sample",
      "bpf_overflow_handler",
      // The interpreter, where the JIT is off.
      "___bpf_prog_run",
      "bpf_get_task_stack",
      // Stack walking.
      "get_perf_callchain",
      "perf_callchain",
      "perf_callchain_kernel",
      "stack_trace_consume_entry",
      "save_stack_trace",
      "unwind_next_frame",
      "__unwind_start",
      // ftrace and what sits on it.
      "ftrace_call",
      "ftrace_caller",
      "ftrace_regs_call",
      "ftrace_regs_caller",
      "ftrace_stub",
      "ftrace_trampoline",
      "ftrace_ops_list_func",
      "__ftrace_ops_list_func",
      "arch_ftrace_ops_list_func",
      "ftrace_ops_assist_func",
      "ftrace_graph_caller",
      "ftrace_graph_func",
      "ftrace_return_to_handler",
      "prepare_ftrace_return",
      "function_graph_enter",
      "function_trace_call",
      "function_stack_trace_call",
      "stack_trace_call",
      "return_to_handler",
      "fprobe_handler",
      "fprobe_exit_handler",
      "fprobe_entry",
      "fprobe_return",
      "fprobe_ftrace_entry",
      "kprobe_multi_link_handler",
      "kprobe_multi_link_exit_handler",
      "kprobe_multi_link_prog_run",
      // kprobes.
      "kprobe_ftrace_handler",
      "kprobe_int3_handler",
      "kprobe_breakpoint_handler",
      "optimized_callback",
      "opt_pre_handler",
      "aggr_pre_handler",
      "pre_handler_kretprobe",
      "kprobe_dispatcher",
      "kretprobe_dispatcher",
      "kprobe_perf_func",
      "kretprobe_perf_func",
      "kprobe_trace_func",
      "kretprobe_trace_func",
      "kretprobe_rethook_handler",
      "kretprobe_trampoline",
      "__kretprobe_trampoline",
      "__kretprobe_trampoline_handler",
      "trampoline_handler",
      "arch_rethook_trampoline",
      "arch_rethook_trampoline_callback",
      "rethook_trampoline_handler",
      "do_int3",
      "exc_int3",
      "asm_exc_int3",
      "int3",
      "brk_handler",
      "call_break_hook",
      "do_debug_exception",
      "el1_dbg",
  };
  return *names;
}

bool IsTracer(std::string_view name) {
  for (std::string_view prefix : kTracerPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return IsBpfProgram(name) || IsBpfTrampoline(name) || IsNumbered(name, "bpf_trace_run") ||
         IsNumbered(name, "__bpf_prog_run") || TracerNames().contains(ToAbsl(name));
}

// Fixed names of the paths in and out of the kernel, by kind.
const absl::flat_hash_map<absl::string_view, FrameKind>& PathNames() {
  using enum FrameKind;
  static const auto* const names = new absl::flat_hash_map<absl::string_view, FrameKind>{
      // x86 system calls, 64 and 32 bit.
      {"do_syscall_64", kEntry},
      {"do_syscall_x64", kEntry},
      {"do_syscall_x32", kEntry},
      {"x64_sys_call", kEntry},
      {"x32_sys_call", kEntry},
      {"ia32_sys_call", kEntry},
      {"__do_fast_syscall_32", kEntry},
      {"do_fast_syscall_32", kEntry},
      {"do_SYSENTER_32", kEntry},
      {"do_int80_syscall_32", kEntry},
      {"do_syscall_32_irqs_on", kEntry},
      {"do_int80_emulation", kEntry},
      {"int80_emulation", kEntry},
      {"asm_int80_emulation", kEntry},
      {"xen_asm_int80_emulation", kEntry},
      // arm64, riscv, s390.
      {"invoke_syscall", kEntry},
      {"__invoke_syscall", kEntry},
      {"el0_svc", kEntry},
      {"el0_svc_common", kEntry},
      {"el0_svc_handler", kEntry},
      {"el0_svc_compat", kEntry},
      {"el0_svc_compat_handler", kEntry},
      {"do_el0_svc", kEntry},
      {"do_el0_svc_compat", kEntry},
      {"el0_sync", kEntry},
      {"el0_sync_compat", kEntry},
      {"el0_sync_handler", kEntry},
      {"el0_sync_compat_handler", kEntry},
      {"el0t_64_sync", kEntry},
      {"el0t_64_sync_handler", kEntry},
      {"el0t_32_sync", kEntry},
      {"el0t_32_sync_handler", kEntry},
      {"do_trap_ecall_u", kEntry},
      {"__do_syscall", kEntry},
      {"system_call", kEntry},
      // Page faults.
      {"page_fault", kPageFault},
      {"async_page_fault", kPageFault},
      {"do_async_page_fault", kPageFault},
      {"asm_exc_page_fault", kPageFault},
      {"xen_asm_exc_page_fault", kPageFault},
      {"exc_page_fault", kPageFault},
      {"handle_page_fault", kPageFault},
      {"do_page_fault", kPageFault},
      {"__do_page_fault", kPageFault},
      {"do_user_addr_fault", kPageFault},
      {"do_kern_addr_fault", kPageFault},
      {"do_translation_fault", kPageFault},
      {"do_mem_abort", kPageFault},
      {"el0_da", kPageFault},
      {"el0_ia", kPageFault},
      {"el1_da", kPageFault},
      {"el1_abort", kPageFault},
      {"el1_sync", kFaultGlue},
      {"el1_sync_handler", kFaultGlue},
      {"el1h_64_sync", kFaultGlue},
      {"el1h_64_sync_handler", kFaultGlue},
      // Work on the way back to user space.
      {"exit_to_user_mode_loop", kExitToUser},
      {"exit_to_user_mode_prepare", kExitToUser},
      {"exit_to_usermode_loop", kExitToUser},
      {"prepare_exit_to_usermode", kExitToUser},
      {"syscall_exit_to_user_mode", kExitToUser},
      {"syscall_exit_to_user_mode_work", kExitToUser},
      {"__syscall_exit_to_user_mode_work", kExitToUser},
      {"syscall_exit_to_user_mode_prepare", kExitToUser},
      {"irqentry_exit_to_user_mode", kExitToUser},
      {"do_notify_resume", kExitToUser},
      {"exit_to_user_mode", kExitToUser},
  };
  return *names;
}

// Functions that implement a system call for sure: made by the kernel's SYSCALL_DEFINE macros.
// `name` becomes what stands behind "sys_".
bool StripSyscallWrapper(std::string_view* name) {
  static constexpr std::string_view kWrappers[] = {
      "__x64_",   "__ia32_",      "__x32_",     "__arm64_", "__riscv_", "__s390_",
      "__s390x_", "__loongarch_", "__powerpc_", "__do_",    "__se_",
  };
  for (std::string_view wrapper : kWrappers) {
    if (!name->starts_with(wrapper)) continue;
    std::string_view rest = name->substr(wrapper.size());
    if (rest.starts_with("compat_")) rest.remove_prefix(7);
    if (!rest.starts_with("sys_") || rest.size() == 4) return false;
    *name = rest.substr(4);
    return true;
  }
  return false;
}

bool StripMaybeSyscall(std::string_view* name) {
  for (std::string_view prefix : {"ksys_", "compat_ksys_", "compat_sys_", "sys_"}) {
    if (name->starts_with(prefix) && name->size() > prefix.size()) {
      name->remove_prefix(prefix.size());
      return true;
    }
  }
  return false;
}

// One name for a call whatever the width of its caller, and for two calls whose common
// implementation carries the older one's name.
std::string_view NativeSyscallName(std::string_view name) {
  for (std::string_view prefix : {"ia32_", "aarch32_", "x32_"}) {
    if (name.starts_with(prefix) && name.size() > prefix.size()) {
      name.remove_prefix(prefix.size());
      break;
    }
  }
  if (name == "mmap_pgoff") return "mmap";
  if (name == "fadvise64_64") return "fadvise64";
  return name;
}

}  // namespace

ClassifiedFrame ClassifyFrame(const SymbolizedFrame& frame) {
  ClassifiedFrame c{.frame = &frame};
  if (IsTracerModule(frame.module)) {
    c.kind = FrameKind::kTracer;
    return c;
  }
  std::string_view name = StripCompilerDecoration(frame.symbol);
  c.name = name;
  if (name.empty()) {
    c.kind = FrameKind::kUnresolved;
    return c;
  }
  if (IsTracer(name)) {
    c.kind = FrameKind::kTracer;
    return c;
  }
  if (auto it = PathNames().find(ToAbsl(name)); it != PathNames().end()) {
    c.kind = it->second;
    return c;
  }
  if (name.starts_with("entry_SYSCALL") || name.starts_with("entry_SYSENTER") ||
      name.starts_with("entry_INT80") || name.starts_with("xen_entry_SYS")) {
    c.kind = FrameKind::kEntry;
    return c;
  }
  if (name.starts_with("ret_from_fork")) {
    c.kind = FrameKind::kFork;
    return c;
  }
  if (StripSyscallWrapper(&name)) {
    c.kind = FrameKind::kSyscall;
    c.name = NativeSyscallName(name);
  } else if (StripMaybeSyscall(&name)) {
    c.kind = FrameKind::kMaybeSyscall;
    c.name = NativeSyscallName(name);
  }
  return c;
}

}  // namespace fleetblame
