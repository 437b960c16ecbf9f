// SPDX-License-Identifier: Apache-2.0
//
// The code and docs/counters.md say the same.
#include "common/loss_counters.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace fleetblame {
namespace {

// Rows of the page's tables: name, what it warns of.
std::vector<std::pair<std::string, std::string>> Documented() {
  std::vector<std::pair<std::string, std::string>> rows;
  std::ifstream page("docs/counters.md");
  for (std::string line; std::getline(page, line);) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() < 4) continue;
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    if (cells[1] != "name" && cells[1].find("---") != 0) rows.emplace_back(cells[1], cells[2]);
  }
  return rows;
}

TEST(LossCounters, AreAsDocumented) {
  auto rows = Documented();
  EXPECT_GT(rows.size(), 25u);
  for (const auto& [name, warns] : rows) {
    const LossMeaning meaning = MeaningOfLoss(name);
    EXPECT_EQ(warns, meaning == LossMeaning::kBytes   ? "bytes"
                     : meaning == LossMeaning::kBlame ? "blame"
                                                      : "\u2013")
        << name;
  }
}

TEST(LossCounters, WhatNobodyKnowsIsTakenSeriously) {
  EXPECT_EQ(MeaningOfLoss("of_a_newer_agent"), LossMeaning::kBlame);
  EXPECT_EQ(MeaningOfLoss(""), LossMeaning::kBlame);
}

}  // namespace
}  // namespace fleetblame
