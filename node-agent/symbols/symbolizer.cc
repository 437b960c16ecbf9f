// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/symbolizer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

constexpr char kHiddenSentence[] =
    "kernel symbols are hidden: stacks show no function names and cannot be compared between "
    "hosts; "
    "run the agent with CAP_SYSLOG and kernel.kptr_restrict at most 1, then restart it";

SymbolizedFrame SymbolizeOne(const SymbolTable& table, uint64_t address) {
  SymbolizedFrame frame;
  if (address == 0) return frame;
  uint64_t call = address - 1;
  if (std::optional<size_t> index = table.FindFunction(call); index.has_value()) {
    Symbol symbol = table.At(*index);
    frame.symbol = std::string(symbol.name);
    frame.module = std::string(symbol.module);
    frame.offset = address - symbol.address;
  } else if (std::optional<size_t> first = table.FindModule(call); first.has_value()) {
    Symbol symbol = table.At(*first);
    frame.module = std::string(symbol.module);
    frame.offset = address - symbol.address;
  }
  return frame;
}

}  // namespace

absl::Status Symbolizer::Refresh(std::istream& kallsyms) {
  KallsymsStats stats;
  SymbolTable table = SymbolTable::Read(kallsyms, &stats);
  if (table.size() == 0 && stats.hidden == 0) {
    return absl::DataLossError(absl::StrCat("symbol table holds no kernel function in ",
                                            stats.lines, " lines, ", stats.malformed,
                                            " of them unreadable"));
  }
  stats_ = stats;
  limitation_ = table.size() == 0 ? kHiddenSentence : "";
  table_ = std::move(table);
  return absl::OkStatus();
}

std::vector<SymbolizedFrame> Symbolizer::Symbolize(std::span<const uint64_t> addresses) const {
  std::vector<SymbolizedFrame> frames;
  frames.reserve(addresses.size());
  for (uint64_t address : addresses) frames.push_back(SymbolizeOne(table_, address));
  return frames;
}

}  // namespace fleetblame::agent
