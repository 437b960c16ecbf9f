// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/symbolizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace fleetblame::agent {
namespace {

constexpr char kTable[] =
    "ffffffff81000000 T _text\n"
    "ffffffff81000000 T startup_64\n"
    "ffffffff81000100 t __pfx_alpha\n"
    "ffffffff81000110 t alpha\n"
    "ffffffff81000200 T __beta\n"
    "ffffffff81000200 W beta\n"
    "ffffffff81000200 t beta.isra.0\n"
    "ffffffff81000300 T gamma_never_returns\n"
    "ffffffff81001000 T _etext\n"
    "ffffffff82000000 D some_data\n"
    "ffffffffc0201000 t ext4_one\t[ext4]\n"
    "ffffffffc0201400 t ext4_two\t[ext4]\n"
    "ffffffffc0241400 t ext4_far\t[ext4]\n"
    "ffffffffc0005000 t bpf_prog_6deef7357e7b4530_dirty\t[bpf]";

Symbolizer Load(const std::string& text) {
  std::istringstream in(text);
  Symbolizer symbolizer;
  absl::Status status = symbolizer.Refresh(in);
  EXPECT_TRUE(status.ok()) << status;
  return symbolizer;
}

SymbolizedFrame One(const Symbolizer& symbolizer, uint64_t address) {
  return symbolizer.Symbolize(std::vector<uint64_t>{address}).at(0);
}

TEST(Symbolizer, FindsFunctionsWithOffsetAndModule) {
  Symbolizer s = Load(kTable);
  EXPECT_EQ(One(s, 0xffffffff81000115), (SymbolizedFrame{"alpha", "", 5}));
  EXPECT_EQ(One(s, 0xffffffffc0201010), (SymbolizedFrame{"ext4_one", "ext4", 0x10}));
  EXPECT_EQ(One(s, 0xffffffffc0201410), (SymbolizedFrame{"ext4_two", "ext4", 0x10}));
  EXPECT_EQ(One(s, 0xffffffffc0005001),
            (SymbolizedFrame{"bpf_prog_6deef7357e7b4530_dirty", "bpf", 1}));
}

TEST(Symbolizer, AReturnAddressBelongsToTheFunctionOfTheCall) {
  Symbolizer s = Load(kTable);
  EXPECT_EQ(One(s, 0xffffffff81000300), (SymbolizedFrame{"beta", "", 0x100}));
}

TEST(Symbolizer, ChoosesAmongAliasesByNameAlone) {
  Symbolizer s = Load(kTable);
  EXPECT_EQ(One(s, 0xffffffff81000210).symbol, "beta");
  EXPECT_EQ(One(s, 0xffffffff81000010).symbol, "startup_64");
  // The order of the lines and the types of the symbols do not matter.
  Symbolizer t = Load("1000 W beta.isra.0\n1000 t beta\n1000 T __beta\n");
  EXPECT_EQ(One(t, 0x1010).symbol, "beta");
}

TEST(PreferredAlias, IsAStrictOrder) {
  const std::vector<std::string> best_first = {
      "memcpy",  "memmove",  "copy_all_bytes",    "foo.isra.0",
      "_memcpy", "__memcpy", "__sched_text_start"};
  for (size_t i = 0; i < best_first.size(); ++i) {
    for (size_t j = 0; j < best_first.size(); ++j) {
      EXPECT_EQ(PreferredAlias(best_first[i], best_first[j]), i < j)
          << best_first[i] << " " << best_first[j];
    }
  }
}

TEST(Symbolizer, LeavesHolesUnresolved) {
  Symbolizer s = Load(kTable);
  EXPECT_EQ(One(s, 0), SymbolizedFrame());
  EXPECT_EQ(One(s, 1), SymbolizedFrame());
  EXPECT_EQ(One(s, 0xffffffff80ffffff), SymbolizedFrame());
  // Behind the end of the text, and far behind a BPF program.
  EXPECT_EQ(One(s, 0xffffffff81001008), SymbolizedFrame());
  EXPECT_EQ(One(s, 0xffffffffc0100000), SymbolizedFrame());
  EXPECT_EQ(One(s, UINT64_MAX), SymbolizedFrame());
}

TEST(Symbolizer, GivesModuleAndOffsetWhereAModuleHasNoSymbol) {
  Symbolizer s = Load(kTable);
  EXPECT_EQ(One(s, 0xffffffffc0231000), (SymbolizedFrame{"", "ext4", 0x30000}));
}

TEST(Symbolizer, HiddenSymbolsAreALimitationNotAnError) {
  Symbolizer s = Load("0000000000000000 T _text\n0000000000000000 t alpha\n");
  EXPECT_NE(s.limitation().find("kptr_restrict"), std::string::npos);
  EXPECT_EQ(One(s, 0xffffffff81000115), SymbolizedFrame());
  EXPECT_EQ(s.stats().hidden, 2u);
  // And it goes away with a better table.
  std::istringstream in(kTable);
  ASSERT_TRUE(s.Refresh(in).ok());
  EXPECT_EQ(s.limitation(), "");
  EXPECT_EQ(One(s, 0xffffffff81000115).symbol, "alpha");
}

TEST(Symbolizer, KeepsTheOldTableWhenTheNewOneIsUseless) {
  Symbolizer s = Load(kTable);
  for (const char* bad : {"", "\n\n", "garbage", "ffffffff82000000 D only_data\n"}) {
    std::istringstream in(bad);
    EXPECT_EQ(s.Refresh(in).code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_EQ(One(s, 0xffffffff81000115).symbol, "alpha");
  }
}

TEST(Symbolizer, SkipsAndCountsGarbage) {
  std::string text =
      "ffffffff81000110 t alpha\n"
      "what is this\n"
      "\n"
      "ffffffff81000150 t " +
      std::string(2 * kMaxLineBytes, 'a') +
      "\n"
      "ffffffff81000160 t bad\x01name\n"
      "ffffffff81000200 t omega";
  Symbolizer s = Load(text);
  EXPECT_EQ(s.stats().lines, 6u);
  EXPECT_EQ(s.stats().malformed, 4u);
  EXPECT_EQ(s.table().size(), 2u);
  EXPECT_EQ(One(s, 0xffffffff81000205).symbol, "omega");
}

TEST(Symbolizer, CoversTheWholeAddressSpace) {
  // Segments are 4 GiB wide: functions further apart than that, as on arm64.
  Symbolizer s = Load(
      "ffff800008000000 T low\n"
      "ffff800008000100 T low_next\n"
      "ffff8001080000ff T just_below\n"
      "ffff800108000100 T at_the_edge\n"
      "ffffffffffffff00 T top\n");
  EXPECT_EQ(One(s, 0xffff800008000010).symbol, "low");
  EXPECT_EQ(One(s, 0xffff800008000110).symbol, "low_next");
  EXPECT_EQ(One(s, 0xffff800108000100).symbol, "just_below");
  EXPECT_EQ(One(s, 0xffff800108000101).symbol, "at_the_edge");
  EXPECT_EQ(One(s, 0xffffffffffffffff).symbol, "top");
  EXPECT_EQ(One(s, 0xffff8000f8000000), SymbolizedFrame());
}

// Against a plain ordered map, with unsorted input and addresses near and far.
TEST(SymbolizerProperty, AgreesWithAnOrderedMap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::map<uint64_t, std::string> truth;
    std::vector<std::string> lines;
    for (int i = 0; i < 2000; ++i) {
      uint64_t base = random() % 3 == 0 ? 0xffffffffc0000000 : 0xffffffff81000000;
      uint64_t address = base + random() % (1 << 22);
      std::string name = absl::StrFormat("f%d", i);
      auto [it, inserted] = truth.try_emplace(address, name);
      if (!inserted && PreferredAlias(name, it->second)) it->second = name;
      lines.push_back(absl::StrFormat("%016x t %s\n", address, name));
    }
    std::shuffle(lines.begin(), lines.end(), random);
    std::string text;
    for (const std::string& l : lines) text += l;
    Symbolizer s = Load(text);
    EXPECT_EQ(s.table().size(), truth.size());
    for (int i = 0; i < 2000; ++i) {
      uint64_t address =
          (random() % 2 == 0 ? 0xffffffffc0000000 : 0xffffffff81000000) + random() % (1 << 22);
      auto it = truth.lower_bound(address);  // last one below `address`
      SymbolizedFrame expected;
      if (it != truth.begin()) {
        --it;
        if (address - 1 - it->first < (1 << 20)) expected = {it->second, "", address - it->first};
      }
      ASSERT_EQ(One(s, address), expected) << std::hex << address;
    }
  }
}

TEST(SymbolizerFuzz, SurvivesRandomBytes) {
  std::mt19937_64 random(5);
  const std::string seed_text = kTable;
  for (int round = 0; round < 2000; ++round) {
    std::string text = seed_text;
    for (uint64_t flips = random() % 40; flips > 0; --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    if (random() % 3 == 0) text.resize(random() % text.size());
    std::istringstream in(text);
    Symbolizer s;
    (void)s.Refresh(in);
    std::vector<uint64_t> addresses = {0,        1,         0xffffffff81000115, 0xffffffffc0231000,
                                       random(), UINT64_MAX};
    EXPECT_EQ(s.Symbolize(addresses).size(), addresses.size());
  }
}

TEST(SymbolTable, IsCompact) {
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    text += absl::StrFormat("%016x t some_kernel_function_%06d\n", 0xffffffff81000000 + i * 64, i);
  }
  Symbolizer s = Load(text);
  EXPECT_EQ(s.table().size(), 200000u);
  EXPECT_LT(s.table().memory_bytes(), 200000u * 40);
}

}  // namespace
}  // namespace fleetblame::agent
