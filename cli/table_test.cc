// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <gtest/gtest.h>

#include <clocale>
#include <sstream>

#include "absl/strings/str_split.h"

namespace fleetblame::cli {
namespace {

class TableTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr);
    table_.AddRow({"2.9 GiB", "5,812", "postgres", "ext4_da_write_end ← pwrite64"});
    table_.AddRow({"611 MiB", "1,240", "rsync", "generic_perform_write ← write"});
  }
  std::string Print(int width) {
    Terminal terminal;
    terminal.width = width;
    std::ostringstream out;
    table_.Print(terminal, out);
    return out.str();
  }
  Table table_{{{.title = "WRITTEN"},
                {.title = "IOS", .dispensable = 1},
                {.title = "WHO", .align = Table::Align::kLeft, .min_width = 4},
                {.title = "WHY", .align = Table::Align::kLeft, .min_width = 8}}};
};

TEST_F(TableTest, AlignsColumns) {
  EXPECT_EQ(Print(0),
            "  WRITTEN    IOS  WHO       WHY\n"
            "  2.9 GiB  5,812  postgres  ext4_da_write_end ← pwrite64\n"
            "  611 MiB  1,240  rsync     generic_perform_write ← write\n");
}

TEST_F(TableTest, NoLineIsWiderThanTheTerminal) {
  for (int width = 26; width < 80; ++width) {
    const std::vector<std::string> lines = absl::StrSplit(Print(width), '\n');
    for (const std::string& line : lines) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

TEST_F(TableTest, DropsDispensableColumnsBeforeTheOthers) {
  EXPECT_EQ(Print(28).find("IOS"), std::string::npos);
  EXPECT_NE(Print(28).find("WRITTEN"), std::string::npos);
}

TEST(WriteCsvRecord, QuotesWhatRfc4180Wants) {
  std::ostringstream out;
  WriteCsvRecord({"a", "b,c", "say \"x\"", "two\nlines", ""}, out);
  EXPECT_EQ(out.str(), "a,\"b,c\",\"say \"\"x\"\"\",\"two\nlines\",\r\n");
}

}  // namespace
}  // namespace fleetblame::cli
