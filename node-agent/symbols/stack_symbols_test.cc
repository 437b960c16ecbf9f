// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/stack_symbols.h"

#include <gtest/gtest.h>

#include "common/intent/intent.h"
#include "node-agent/tracer/replay/scripted_tracer.h"

namespace fleetblame::agent {
namespace {

constexpr char kBoot[] =
    "ffffffff81000000 T vfs_write\n"
    "ffffffff81000100 T __x64_sys_write\n"
    "ffffffff81000200 T _etext\n"
    "ffffffffc0005000 t bpf_prog_6deef7357e7b4530_dirty\t[bpf]\n";
constexpr char kWithExt4[] = "ffffffffc0201000 t ext4_write\t[ext4]\n";

TracerScript Script() {
  TracerScript script;
  script.kallsyms = kBoot;
  return script;
}

TEST(StackSymbols, NamesEachStackOnce) {
  ScriptedTracer tracer(Script());
  StackSymbols symbols(&tracer);
  ASSERT_TRUE(symbols.Define({{2, {0xffffffff81000010, 0xffffffff81000110}}}).ok());
  std::vector<SymbolizedFrame> frames = symbols.Frames(2);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0], (SymbolizedFrame{"vfs_write", "", 0x10}));
  EXPECT_EQ(frames[1], (SymbolizedFrame{"__x64_sys_write", "", 0x10}));
  EXPECT_TRUE(symbols.Known(2));
  EXPECT_FALSE(symbols.Known(3));
  EXPECT_TRUE(symbols.Frames(3).empty());
}

TEST(StackSymbols, ReadsTheTableOnlyWhenNeeded) {
  ScriptedTracer tracer(Script());
  StackSymbols symbols(&tracer);
  EXPECT_TRUE(symbols.Define({}).ok());
  EXPECT_EQ(tracer.kallsyms_opened(), 0);
  EXPECT_TRUE(symbols.Define({{2, {0xffffffff81000010}}}).ok());
  EXPECT_EQ(tracer.kallsyms_opened(), 1);
  // Core kernel and BPF addresses need no newer table although there is one.
  tracer.script().symbol_generation = 2;
  EXPECT_TRUE(symbols.Define({{3, {0xffffffff81000110, 0xffffffffc0005010}}}).ok());
  EXPECT_EQ(tracer.kallsyms_opened(), 1);
  // An unknown address does, once for each change.
  tracer.script().kallsyms += kWithExt4;
  EXPECT_TRUE(symbols.Define({{4, {0xffffffffc0201010}}}).ok());
  EXPECT_EQ(tracer.kallsyms_opened(), 2);
  EXPECT_EQ(symbols.Frames(4)[0].symbol, "ext4_write");
  EXPECT_TRUE(symbols.Define({{5, {0xffffffffd0000000}}, {6, {0xffffffffd0000010}}}).ok());
  EXPECT_EQ(tracer.kallsyms_opened(), 2);
}

TEST(StackSymbols, AnUnloadedModuleLeavesItsNamesBehind) {
  TracerScript script = Script();
  script.kallsyms += kWithExt4;
  ScriptedTracer tracer(std::move(script));
  StackSymbols symbols(&tracer);
  ASSERT_TRUE(symbols.Define({{2, {0xffffffffc0201010}}}).ok());
  tracer.script().kallsyms = std::string(kBoot) + "ffffffffc0201000 t xfs_write\t[xfs]\n";
  tracer.script().symbol_generation = 2;
  ASSERT_TRUE(symbols.Define({{3, {0xffffffffc0201010}}}).ok());
  EXPECT_EQ(symbols.Frames(2)[0].symbol, "ext4_write");
  EXPECT_EQ(symbols.Frames(3)[0].symbol, "xfs_write");
  // An id that the tracer gives away anew has its new meaning.
  ASSERT_TRUE(symbols.Define({{2, {0xffffffff81000010}}}).ok());
  EXPECT_EQ(symbols.Frames(2)[0].symbol, "vfs_write");
}

TEST(StackSymbols, AnUnreadableTableNeverStopsAnything) {
  TracerScript script = Script();
  script.kallsyms_status = absl::PermissionDeniedError("open /proc/kallsyms: Permission denied");
  ScriptedTracer tracer(std::move(script));
  StackSymbols symbols(&tracer);
  EXPECT_EQ(symbols.Define({{2, {0xffffffff81000010}}}).code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(symbols.Frames(2).size(), 1u);
  EXPECT_EQ(symbols.Frames(2)[0], SymbolizedFrame());
  EXPECT_NE(symbols.limitation().find("Permission denied"), std::string::npos);
  v1::Intent intent = BuildIntent(symbols.Frames(2), "", "6.1", "");
  EXPECT_TRUE(intent.unsymbolized());
  EXPECT_EQ(intent.frames(0), "0x?");
  // It is tried again when the kernel's symbols change.
  tracer.script().kallsyms_status = absl::OkStatus();
  tracer.script().symbol_generation = 2;
  EXPECT_TRUE(symbols.Define({{2, {0xffffffff81000010}}}).ok());
  EXPECT_EQ(symbols.Frames(2)[0].symbol, "vfs_write");
  EXPECT_EQ(symbols.limitation(), "");
}

TEST(StackSymbols, IsBounded) {
  ScriptedTracer tracer(Script());
  StackSymbols symbols(&tracer, /*max_stacks=*/2);
  for (StackId id = 2; id < 10; ++id) {
    ASSERT_TRUE(symbols.Define({{id, {0xffffffff81000010}}}).ok());
  }
  EXPECT_EQ(symbols.size(), 2u);
  EXPECT_EQ(symbols.uncached(), 6u);
  // Redefinition of a known id is always taken.
  ASSERT_TRUE(symbols.Define({{3, {0xffffffff81000110}}}).ok());
  EXPECT_EQ(symbols.Frames(3)[0].symbol, "__x64_sys_write");
}

}  // namespace
}  // namespace fleetblame::agent
