// SPDX-License-Identifier: Apache-2.0
#include "common/intent/canonical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fleetblame {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<SymbolizedFrame> Stack(const std::vector<std::string>& symbols) {
  std::vector<SymbolizedFrame> frames;
  for (const std::string& s : symbols) frames.push_back({.symbol = s, .module = "", .offset = 7});
  return frames;
}

std::vector<std::string> Canonical(const std::vector<std::string>& symbols) {
  return Canonicalize(Stack(symbols)).frames;
}

TEST(StripCompilerDecoration, RemovesWhatCompilersAdd) {
  const std::pair<const char*, const char*> cases[] = {
      {"ext4_writepages", "ext4_writepages"},
      {"ext4_fsync_nojournal.constprop.0", "ext4_fsync_nojournal"},
      {"foo.isra.12", "foo"},
      {"foo.part.3.isra.0.cold", "foo"},
      {"foo.cold", "foo"},
      {"foo.llvm.1234567890", "foo"},
      {"foo.lto_priv.0", "foo"},
      {"__pfx_foo", "foo"},
      {"__cfi_foo", "foo"},
      {"__pfx_foo.isra.0", "foo"},
      {"__pfx_", "__pfx_"},
      {".E_copy", ".E_copy"},
      {"", ""},
  };
  for (auto [from, to] : cases) EXPECT_EQ(StripCompilerDecoration(from), to) << from;
}

TEST(Canonicalize, OneNameForEachWayIntoASystemCall) {
  const std::vector<std::vector<std::string>> ways = {
      {"vfs_write", "__x64_sys_pwrite64", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"},
      {"vfs_write", "ksys_pwrite64", "__x64_sys_pwrite64", "x64_sys_call", "do_syscall_64",
       "entry_SYSCALL_64_after_hwframe"},
      // The wrapper jumped instead of calling, so it left no frame.
      {"vfs_write", "ksys_pwrite64", "do_syscall_64", "entry_SYSCALL_64"},
      {"vfs_write", "__do_sys_pwrite64", "__se_sys_pwrite64", "__x64_sys_pwrite64.cold",
       "x64_sys_call", "do_syscall_64", "entry_SYSCALL_64_safe_stack"},
      {"vfs_write", "__ia32_sys_ia32_pwrite64", "ia32_sys_call", "do_int80_emulation",
       "asm_int80_emulation"},
      {"vfs_write", "__ia32_compat_sys_pwrite64", "__do_fast_syscall_32", "do_fast_syscall_32",
       "entry_SYSENTER_compat_after_hwframe"},
      {"vfs_write", "__do_compat_sys_pwrite64", "do_int80_syscall_32", "entry_INT80_compat"},
      {"vfs_write", "ksys_pwrite64", "__arm64_sys_pwrite64", "invoke_syscall.constprop.0",
       "el0_svc_common.constprop.0", "do_el0_svc", "el0_svc", "el0t_64_sync_handler",
       "el0t_64_sync"},
      {"vfs_write", "__arm64_compat_sys_aarch32_pwrite64", "invoke_syscall", "do_el0_svc_compat",
       "el0_svc_compat", "el0t_32_sync_handler", "el0t_32_sync"},
      {"vfs_write", "__riscv_sys_pwrite64", "do_trap_ecall_u"},
  };
  for (const auto& way : ways) {
    EXPECT_THAT(Canonical(way), ElementsAre("vfs_write", "sys_pwrite64")) << way[1];
  }
}

TEST(Canonicalize, TheOutermostWrapperNamesTheCall) {
  EXPECT_THAT(Canonical({"vm_mmap_pgoff", "ksys_mmap_pgoff", "__x64_sys_mmap", "do_syscall_64"}),
              ElementsAre("vm_mmap_pgoff", "sys_mmap"));
  EXPECT_THAT(Canonical({"vm_mmap_pgoff", "ksys_mmap_pgoff", "do_syscall_64"}),
              ElementsAre("vm_mmap_pgoff", "sys_mmap"));
}

TEST(Canonicalize, LookAlikesOfSystemCallsKeepTheirNames) {
  EXPECT_THAT(Canonical({"ksys_sync_helper", "pm_suspend", "state_store", "__x64_sys_write",
                         "do_syscall_64"}),
              ElementsAre("ksys_sync_helper", "pm_suspend", "state_store", "sys_write"));
  EXPECT_THAT(Canonical({"sys_imageblit", "fbcon_putcs"}),
              ElementsAre("sys_imageblit", "fbcon_putcs"));
  EXPECT_THAT(Canonical({"proc_sys_write", "vfs_write"}),
              ElementsAre("proc_sys_write", "vfs_write"));
}

TEST(Canonicalize, AnEntryWithoutANameIsStillSeen) {
  EXPECT_THAT(Canonical({"do_fsync", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"}),
              ElementsAre("do_fsync", "syscall"));
}

TEST(Canonicalize, PageFaultsAreOneFrame) {
  for (const auto& way : std::vector<std::vector<std::string>>{
           {"handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"},
           {"handle_mm_fault", "do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault"},
           {"handle_mm_fault", "do_page_fault", "do_translation_fault", "do_mem_abort", "el0_da",
            "el0t_64_sync_handler", "el0t_64_sync"}}) {
    EXPECT_THAT(Canonical(way), ElementsAre("handle_mm_fault", "page_fault"));
  }
  // A fault while the kernel copies from user memory keeps what was going on around it.
  EXPECT_THAT(
      Canonical({"handle_mm_fault", "do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault",
                 "fault_in_readable", "__x64_sys_write", "do_syscall_64"}),
      ElementsAre("handle_mm_fault", "page_fault", "fault_in_readable", "sys_write"));
}

TEST(Canonicalize, WorkOnTheWayOutIsOneFrameHoweverTheKernelWasEntered) {
  for (const auto& way : std::vector<std::vector<std::string>>{
           {"__fput", "task_work_run", "exit_to_user_mode_loop", "do_syscall_64",
            "entry_SYSCALL_64_after_hwframe"},
           {"__fput", "task_work_run", "exit_to_user_mode_prepare", "syscall_exit_to_user_mode",
            "do_syscall_64", "entry_SYSCALL_64_after_hwframe"},
           {"__fput", "task_work_run", "irqentry_exit_to_user_mode",
            "asm_sysvec_reschedule_ipi"}}) {
    EXPECT_THAT(Canonical(way), ElementsAre("__fput", "task_work_run", "exit_to_user_mode"));
  }
}

TEST(Canonicalize, ThreadsBeginInOnePlace) {
  for (const auto& way : std::vector<std::vector<std::string>>{
           {"kjournald2", "kthread", "ret_from_fork"},
           {"kjournald2", "kthread", "ret_from_fork", "ret_from_fork_asm"},
           {"kjournald2", "kthread", "ret_from_fork_asm"}}) {
    EXPECT_THAT(Canonical(way), ElementsAre("kjournald2", "kthread", "ret_from_fork"));
  }
}

TEST(Canonicalize, TheTracerIsNotPartOfTheStack) {
  EXPECT_THAT(Canonical({"bpf_get_stack_raw_tp", "bpf_prog_6deef7357e7b4530_on_dirty",
                         "bpf_trace_run2", "__bpf_trace_writeback_folio_template",
                         "__traceiter_writeback_dirty_folio", "__folio_mark_dirty"}),
              ElementsAre("__folio_mark_dirty"));
  EXPECT_THAT(
      Canonical({"bpf_prog_6deef7357e7b4530", "bpf_trampoline_6442536503", "ext4_file_write_iter"}),
      ElementsAre("ext4_file_write_iter"));
  EXPECT_THAT(Canonical({"kprobe_ftrace_handler", "ftrace_ops_assist_func", "ftrace_regs_call",
                         "jbd2_journal_dirty_metadata"}),
              ElementsAre("jbd2_journal_dirty_metadata"));
  std::vector<SymbolizedFrame> frames = Stack({"anything", "anything", "submit_bio"});
  frames[0].module = "bpf";
  frames[1].module = "__builtin__ftrace";
  EXPECT_THAT(Canonicalize(frames).frames, ElementsAre("submit_bio"));
}

TEST(Canonicalize, RealKernelFunctionsAboutBpfStay) {
  EXPECT_THAT(Canonical({"bpf_prog_load", "__sys_bpf", "__x64_sys_bpf", "do_syscall_64"}),
              ElementsAre("bpf_prog_load", "__sys_bpf", "sys_bpf"));
  EXPECT_THAT(Canonical({"bpf_trampoline_link_prog", "bpf_trace_runner"}),
              ElementsAre("bpf_trampoline_link_prog", "bpf_trace_runner"));
}

TEST(Canonicalize, UnresolvedFramesInsideOfTracingCodeAreTheTracers) {
  // bpf_jit_kallsyms = 0 hides the names of programs.
  CanonicalStack stack = Canonicalize(Stack({"", "bpf_trace_run2", "submit_bio", "", "vfs_write"}));
  EXPECT_THAT(stack.frames, ElementsAre("submit_bio", "0x?", "vfs_write"));
  EXPECT_TRUE(stack.unsymbolized);
  stack = Canonicalize(Stack({"", "bpf_trace_run2", "submit_bio"}));
  EXPECT_THAT(stack.frames, ElementsAre("submit_bio"));
  EXPECT_FALSE(stack.unsymbolized);
}

TEST(Canonicalize, UnresolvedFramesShowTheirModule) {
  std::vector<SymbolizedFrame> frames = {{.symbol = "", .module = "ext4", .offset = 0x1a2b},
                                         {.symbol = "", .module = "", .offset = 99}};
  CanonicalStack stack = Canonicalize(frames);
  EXPECT_THAT(stack.frames, ElementsAre("ext4+0x1a2b", "0x?"));
  EXPECT_TRUE(stack.unsymbolized);
}

TEST(Canonicalize, AFunctionCutInTwoIsOneFrame) {
  EXPECT_THAT(Canonical({"foo.part.0", "foo", "bar"}), ElementsAre("foo", "bar"));
  EXPECT_THAT(Canonical({"foo.part.0.isra.0", "foo.constprop.0", "bar"}),
              ElementsAre("foo", "bar"));
  EXPECT_THAT(Canonical({"foo.part.0", "bar"}), ElementsAre("foo", "bar"));
}

TEST(Canonicalize, RecursionStays) {
  EXPECT_THAT(Canonical({"foo", "foo.isra.0", "foo", "bar"}),
              ElementsAre("foo", "foo", "foo", "bar"));
}

TEST(Canonicalize, DifferentFunctionsOfOtherKernelsAreNotFolded) {
  EXPECT_NE(Canonical({"__set_page_dirty_buffers", "mark_buffer_dirty"}),
            Canonical({"block_dirty_folio", "mark_buffer_dirty"}));
}

TEST(Canonicalize, NothingStaysNothing) {
  EXPECT_THAT(Canonicalize({}).frames, IsEmpty());
  EXPECT_THAT(Canonical({"bpf_trace_run2"}), IsEmpty());
}

// Stacks as Debian's 6.1 and a 6.18 kernel print them, for the same causes.
TEST(Canonicalize, RealStacksOfTwoKernels) {
  EXPECT_THAT(
      Canonical({"trace_event_raw_event_writeback_folio_template", "__folio_mark_dirty",
                 "mark_buffer_dirty", "__block_commit_write.constprop.0.isra.0",
                 "generic_write_end", "generic_perform_write", "ext4_buffered_write_iter",
                 "vfs_write", "ksys_write", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"}),
      ElementsAre("__folio_mark_dirty", "mark_buffer_dirty", "__block_commit_write",
                  "generic_write_end", "generic_perform_write", "ext4_buffered_write_iter",
                  "vfs_write", "sys_write"));
  EXPECT_THAT(
      Canonical({"jbd2_journal_commit_transaction", "kjournald2", "kthread", "ret_from_fork"}),
      Canonical({"jbd2_journal_commit_transaction", "kjournald2", "kthread", "ret_from_fork",
                 "ret_from_fork_asm"}));
  EXPECT_THAT(Canonical({"iterate_supers", "ksys_sync", "__do_sys_sync", "do_syscall_64",
                         "entry_SYSCALL_64_after_hwframe"}),
              ElementsAre("iterate_supers", "sys_sync"));
  EXPECT_THAT(
      Canonical({"ext4_page_mkwrite", "handle_mm_fault", "do_user_addr_fault", "exc_page_fault",
                 "asm_exc_page_fault"}),
      Canonical({"ext4_page_mkwrite", "handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"}));
}

// Applying the rules to their own result changes nothing: whoever stores canonical frames may
// canonicalise them again.
TEST(Canonicalize, IsIdempotent) {
  for (const auto& stack : std::vector<std::vector<std::string>>{
           {"vfs_write", "ksys_pwrite64", "__x64_sys_pwrite64", "do_syscall_64"},
           {"__fput", "task_work_run", "exit_to_user_mode_loop", "do_syscall_64"},
           {"handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"},
           {"do_fsync", "do_syscall_64"},
           {"kjournald2", "kthread", "ret_from_fork_asm"},
           {"foo.part.0", "foo", "bar.cold"}}) {
    std::vector<std::string> once = Canonical(stack);
    EXPECT_EQ(Canonical(once), once);
  }
}

}  // namespace
}  // namespace fleetblame
