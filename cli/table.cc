// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <algorithm>

namespace fleetblame::cli {
namespace {

constexpr int kGap = 2;

int TotalWidth(const std::vector<int>& widths, const std::vector<bool>& shown) {
  int total = 2;  // left margin
  bool first = true;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (!shown[i]) continue;
    total += widths[i] + (first ? 0 : kGap);
    first = false;
  }
  return total;
}

// Takes the missing columns from the flexible ones, the widest first, down to their minimum.
void Shrink(const std::vector<Table::Column>& columns, const std::vector<bool>& shown, int limit,
            std::vector<int>* widths) {
  for (int excess = TotalWidth(*widths, shown) - limit; excess > 0; --excess) {
    int widest = -1;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (!shown[i] || columns[i].min_width == 0 || (*widths)[i] <= columns[i].min_width) continue;
      if (widest < 0 || (*widths)[i] > (*widths)[widest]) widest = static_cast<int>(i);
    }
    if (widest < 0) return;
    --(*widths)[widest];
  }
}

int Minimum(const std::vector<Table::Column>& columns, const std::vector<int>& widths,
            const std::vector<bool>& shown) {
  std::vector<int> least = widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].min_width > 0) least[i] = std::min(least[i], columns[i].min_width);
  }
  return TotalWidth(least, shown);
}

void HideDispensable(const std::vector<Table::Column>& columns, const std::vector<int>& widths,
                     int limit, std::vector<bool>* shown) {
  while (Minimum(columns, widths, *shown) > limit) {
    int victim = -1;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (!(*shown)[i] || columns[i].dispensable == 0) continue;
      if (victim < 0 || columns[i].dispensable > columns[victim].dispensable) {
        victim = static_cast<int>(i);
      }
    }
    if (victim < 0) return;
    (*shown)[victim] = false;
  }
}

std::string Pad(const std::string& cell, int width, Table::Align align, bool last) {
  std::string text = Truncate(cell, width);
  std::string blanks(std::max(0, width - DisplayWidth(text)), ' ');
  if (align == Table::Align::kRight) return blanks + text;
  return last ? text : text + blanks;
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::Print(const Terminal& terminal, std::ostream& out) const {
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i]));
    widths.push_back(width);
  }
  std::vector<bool> shown(columns_.size(), true);
  if (terminal.width > 0) {
    HideDispensable(columns_, widths, terminal.width, &shown);
    Shrink(columns_, shown, terminal.width, &widths);
  }
  size_t last = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (shown[i]) last = i;
  }
  auto print_line = [&](auto&& cell_at) {
    std::string line = "  ";
    bool first = true;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!shown[i]) continue;
      if (!first) line.append(kGap, ' ');
      first = false;
      line += Pad(cell_at(i), widths[i], columns_[i].align, i == last);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::string header =
      print_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  out << (terminal.colour ? "\x1b[1m" + header + "\x1b[0m" : header) << '\n';
  for (const auto& row : rows_) {
    out << print_line([&](size_t i) -> const std::string& { return row[i]; }) << '\n';
  }
}

void WriteCsvRecord(const std::vector<std::string>& fields, std::ostream& out) {
  const bool seen = ShownOnTerminal(out);
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) out << ',';
    const std::string field = seen ? Printable(fields[i]) : fields[i];
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      out << field;
      continue;
    }
    out << '"';
    for (char c : field) {
      if (c == '"') out << '"';
      out << c;
    }
    out << '"';
  }
  out << "\r\n";
}

}  // namespace fleetblame::cli
