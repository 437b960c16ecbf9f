// SPDX-License-Identifier: Apache-2.0
#include "cli/loss_lines.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "common/loss_counters.h"

namespace fleetblame::cli {
namespace {

const char* Text(LossMeaning meaning) {
  switch (meaning) {
    case LossMeaning::kBytes:
      return "bytes or events are missing";
    case LossMeaning::kBlame:
      return "blame is missing";
    case LossMeaning::kNote:
      return "nothing is missing that the books do not show";
  }
  return "";
}

}  // namespace

std::string LossLines(const v1::Summary& summary, bool verbose) {
  const std::map<std::string, uint64_t> sorted(summary.losses().begin(), summary.losses().end());
  std::string out;
  int left_out = 0;
  for (const auto& [name, count] : sorted) {
    const LossMeaning meaning = MeaningOfLoss(name);
    if (meaning == LossMeaning::kNote && !verbose) {
      ++left_out;
      continue;
    }
    absl::StrAppend(&out, "  ", Printable(name), " ", HumanCount(count), "  (", Text(meaning),
                    ")\n");
  }
  if (left_out > 0) {
    absl::StrAppend(&out, "  ", left_out, left_out == 1 ? " counter" : " counters",
                    " by which nothing is lost: --verbose\n");
  }
  return out;
}

}  // namespace fleetblame::cli
