// SPDX-License-Identifier: Apache-2.0
#include "common/intent/intent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/intent/canonical.h"

namespace fleetblame {
namespace {

v1::Intent Definition(const std::string& modifier, const std::vector<std::string>& frames) {
  v1::Intent intent;
  intent.set_modifier(modifier);
  for (const std::string& f : frames) intent.add_frames(f);
  return intent;
}

std::string IdOf(const std::string& modifier, const std::vector<std::string>& frames) {
  return IntentIdHex(ComputeIntentId(Definition(modifier, frames)));
}

// Golden values, computed apart from this code by the xxhsum program over the bytes that
// docs/intent-identity.md describes. A change here renames every intent of every stored fleet.
TEST(IntentId, NeverChangesByAccident) {
  EXPECT_EQ(IdOf("", {}), "fa3f5392c40387fb428516d12156e7b6");
  EXPECT_EQ(IdOf("background",
                 {"ext4_da_write_end", "generic_perform_write", "vfs_write", "sys_pwrite64"}),
            "28b8165be7d32ab839e6124e48ab5947");
  EXPECT_EQ(IdOf("", {"0x?", "ext4+0x1a2b"}), "62ccd9f71f8d8bbff7eed636a8138e3e");
  EXPECT_EQ(IdOf("sync", {"[lost]"}), "2d7430d3e48541ceaa46362fbd7a28fd");
  EXPECT_EQ(IntentIdHex(BuildLostIntent("sync").intent_id()), "2d7430d3e48541ceaa46362fbd7a28fd");
}

TEST(IntentId, HasSixteenBytes) {
  EXPECT_EQ(ComputeIntentId(Definition("", {})).size(), static_cast<size_t>(kIntentIdBytes));
}

TEST(IntentId, FramingIsUnambiguous) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> lists = {
      {"", {"ab", "c"}}, {"", {"a", "bc"}}, {"", {"abc"}},
      {"", {"abc", ""}}, {"", {"", "abc"}}, {"", {std::string("ab\0c", 4)}},
      {"abc", {}},       {"a", {"bc"}},     {"", {"c", "ab"}},
      {"", {}},          {"", {""}},        {std::string("\x01\0\0\0", 4), {}},
  };
  std::set<std::string> ids;
  for (const auto& [modifier, frames] : lists) ids.insert(IdOf(modifier, frames));
  EXPECT_EQ(ids.size(), lists.size());
}

// A kernel as one build of it lays it out: for each function its decorated name and module.
struct Build {
  std::map<std::string, std::pair<std::string, std::string>> functions;
  uint64_t offset_seed = 0;
};

const std::vector<std::string>& Functions() {
  static const auto* const list = new std::vector<std::string>{"__folio_mark_dirty",
                                                               "mark_buffer_dirty",
                                                               "block_write_end",
                                                               "ext4_da_write_end",
                                                               "ext4_buffered_write_iter",
                                                               "generic_perform_write",
                                                               "vfs_write",
                                                               "do_iter_write",
                                                               "ext4_mark_iloc_dirty",
                                                               "ext4_dirty_inode",
                                                               "__mark_inode_dirty",
                                                               "touch_atime",
                                                               "xfs_file_write_iter",
                                                               "iomap_write_end",
                                                               "btrfs_buffered_write",
                                                               "io_write",
                                                               "io_issue_sqe"};
  return *list;
}

Build MakeBuild(uint64_t seed) {
  std::mt19937_64 random(seed);
  Build build{.functions = {}, .offset_seed = seed};
  bool modular = random() % 2 == 0;
  static const char* const kSuffixes[] = {
      "", "", ".isra.0", ".constprop.0", ".cold", ".constprop.0.isra.1", ".llvm.998877"};
  for (const std::string& f : Functions()) {
    std::string module = modular && f.starts_with("ext4_") ? "ext4" : "";
    build.functions[f] = {f + kSuffixes[random() % std::size(kSuffixes)], module};
  }
  return build;
}

std::vector<SymbolizedFrame> StackOn(const Build& build, const std::vector<std::string>& calls) {
  std::mt19937_64 random(build.offset_seed);
  std::vector<SymbolizedFrame> frames;
  if (random() % 2 == 0) {
    frames.push_back({"bpf_prog_0123456789abcdef_dirty", "bpf", random() % 500});
    frames.push_back({"bpf_trace_run2", "", random() % 100});
  }
  for (const std::string& call : calls) {
    const auto& [symbol, module] = build.functions.at(call);
    frames.push_back({symbol, module, random() % 4096});
  }
  if (random() % 2 == 0) frames.push_back({"ksys_write", "", random() % 100});
  frames.push_back({"__x64_sys_write", "", random() % 100});
  if (random() % 2 == 0) frames.push_back({"x64_sys_call", "", random() % 9000});
  frames.push_back({"do_syscall_64", "", random() % 300});
  frames.push_back({"entry_SYSCALL_64_after_hwframe", "", random() % 300});
  return frames;
}

TEST(IntentProperty, OneIdOverAllBuildsAndDifferentOnesForDifferentStacks) {
  std::mt19937_64 random(3);
  std::map<std::string, std::vector<std::string>> by_id;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> calls;
    size_t depth = 1 + random() % 8;
    for (size_t i = 0; i < depth; ++i) calls.push_back(Functions()[random() % Functions().size()]);
    std::set<std::string> ids;
    for (uint64_t host = 0; host < 8; ++host) {
      Build build = MakeBuild(host * 7919 + 1);
      ids.insert(BuildIntent(StackOn(build, calls), "periodic", "6.1", "id").intent_id());
    }
    ASSERT_EQ(ids.size(), 1u);
    auto [it, inserted] = by_id.try_emplace(*ids.begin(), calls);
    EXPECT_EQ(it->second, calls);
  }
  EXPECT_GT(by_id.size(), 200u);
}

TEST(BuildIntent, KeepsWhatCanonicalisationDrops) {
  std::vector<SymbolizedFrame> frames = {{"bpf_trace_run2", "", 5},
                                         {"ext4_writepages.isra.0", "ext4", 0x20},
                                         {"", "zfs", 0x1000},
                                         {"__x64_sys_fsync", "", 15},
                                         {"do_syscall_64", "", 113}};
  v1::Intent intent = BuildIntent(frames, "sync", "6.18.0", "\x01\x02");
  EXPECT_EQ(intent.modifier(), "sync");
  ASSERT_EQ(intent.frames_size(), 3);
  EXPECT_EQ(intent.frames(0), "ext4_writepages");
  EXPECT_EQ(intent.frames(1), "zfs+0x1000");
  EXPECT_EQ(intent.frames(2), "sys_fsync");
  EXPECT_TRUE(intent.unsymbolized());
  EXPECT_EQ(intent.intent_id(), ComputeIntentId(intent));
  ASSERT_EQ(intent.variants_size(), 1);
  const v1::IntentVariant& variant = intent.variants(0);
  EXPECT_EQ(variant.kernel_release(), "6.18.0");
  EXPECT_EQ(variant.vmlinux_build_id(), "\x01\x02");
  ASSERT_EQ(variant.frames_size(), static_cast<int>(frames.size()));
  for (int i = 0; i < variant.frames_size(); ++i) {
    const SymbolizedFrame& f = frames[static_cast<size_t>(i)];
    EXPECT_EQ(variant.frames(i).symbol(), f.symbol);
    EXPECT_EQ(variant.frames(i).module(), f.module);
    EXPECT_EQ(variant.frames(i).offset(), f.offset);
  }
}

TEST(BuildIntent, TheModifierIsPartOfTheIdentity) {
  std::vector<SymbolizedFrame> frames = {{"wb_writeback", "", 1}};
  EXPECT_NE(BuildIntent(frames, "sync", "", "").intent_id(),
            BuildIntent(frames, "background", "", "").intent_id());
}

TEST(SameIntent, ComparesMeaningNotHash) {
  v1::Intent a = Definition("sync", {"x", "y"});
  v1::Intent b = a;
  b.set_intent_id("something else");
  b.add_variants();
  EXPECT_TRUE(SameIntent(a, b));
  EXPECT_FALSE(SameIntent(a, Definition("", {"x", "y"})));
  EXPECT_FALSE(SameIntent(a, Definition("sync", {"x"})));
  EXPECT_FALSE(SameIntent(a, Definition("sync", {"y", "x"})));
}

TEST(IntentIdHex, IsLowerCaseHex) { EXPECT_EQ(IntentIdHex("\x01\xab\xff"), "01abff"); }

}  // namespace
}  // namespace fleetblame
