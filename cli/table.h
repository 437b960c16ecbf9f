// SPDX-License-Identifier: Apache-2.0
//
// A table that fits the terminal: columns as wide as their widest cell; when that is too wide the
// flexible columns shrink, then the least important ones go. The same rows can be printed as CSV
// (RFC 4180). One thread.
#ifndef CLI_TABLE_H_
#define CLI_TABLE_H_

#include <ostream>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace fleetblame::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
    // May be cut to this many columns when space is short; 0 = never cut.
    int min_width = 0;
    // Columns with the highest value are left out first when space is short; 0 = never left out.
    int dispensable = 0;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns. Cells are made printable here.
  void AddRow(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }

  void Print(const Terminal& terminal, std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Writes one CSV record, quoting where needed.
void WriteCsvRecord(const std::vector<std::string>& fields, std::ostream& out);

}  // namespace fleetblame::cli

#endif  // CLI_TABLE_H_
