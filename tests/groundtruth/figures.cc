// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/groundtruth/judge.h"

namespace fleetblame::testing {
namespace {

void Keep(const std::string& name, uint64_t bytes) {
  ::testing::Test::RecordProperty(name, absl::StrCat(bytes));
}

double Share(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(whole, 1));
}

}  // namespace

void TellFigures(const std::string& name, const Figures& figures) {
  TellFigures(name, figures, Share(figures.data_right, figures.data),
              Share(figures.all_right, figures.all));
}

void TellFigures(const std::string& name, const Figures& figures, double data_share,
                 double all_share) {
  std::string confidences;
  for (const auto& [confidence, bytes] : figures.by_confidence) {
    absl::StrAppend(&confidences, confidences.empty() ? "" : " ", ConfidenceName(confidence), " ",
                    bytes * 1000 / std::max<uint64_t>(figures.all, 1) / 10.0, "%");
  }
  std::printf(
      "%-34s data %6.2f%%  all %6.2f%%  wrong %llu  lost %llu  of %.1f MB (%s)\n", name.c_str(),
      100 * data_share, 100 * all_share, static_cast<unsigned long long>(figures.wrong),
      static_cast<unsigned long long>(figures.lost), figures.all / 1e6, confidences.c_str());
  std::fflush(stdout);
  Keep("data_bytes", figures.data);
  Keep("data_right_bytes", figures.data_right);
  Keep("all_bytes", figures.all);
  Keep("all_right_bytes", figures.all_right);
  Keep("wrong_bytes", figures.wrong);
  Keep("lost_bytes", figures.lost);
  for (const auto& [confidence, bytes] : figures.by_confidence) {
    Keep(absl::StrCat("confidence_", ConfidenceName(confidence)), bytes);
  }
}

}  // namespace fleetblame::testing
