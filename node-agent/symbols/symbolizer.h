// SPDX-License-Identifier: Apache-2.0
//
// Kernel addresses to names, from text in the format of /proc/kallsyms. The table holds text
// symbols only, sorted, with 32-bit offsets and one arena of names: some 26 bytes a symbol, 2 to 4
// MB for a distribution kernel.
//
// Addresses are taken as return addresses, which point behind the call: the frame is the function
// that holds `address - 1` (a call of a function that never returns may be the last instruction of
// its caller), while `offset` counts to the address itself, as the kernel prints its own
// backtraces.
//
// Threading: one thread. Units: bytes. Errors: Refresh fails only when the table holds nothing at
// all that could be used, and then the old table stays; a line that makes no sense is counted.
#ifndef NODE_AGENT_SYMBOLS_SYMBOLIZER_H_
#define NODE_AGENT_SYMBOLS_SYMBOLIZER_H_

#include <cstdint>
#include <istream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/intent/frame.h"
#include "node-agent/symbols/symbol_table.h"

namespace fleetblame::agent {

class Symbolizer {
 public:
  // Replaces the table by what `kallsyms` holds. A table whose addresses are all zero
  // (kernel.kptr_restrict) is accepted: frames are unresolved from then on, and `limitation` says
  // so.
  absl::Status Refresh(std::istream& kallsyms);

  // One frame an address, in the same order. Never fails: what is not known comes back without a
  // symbol.
  std::vector<SymbolizedFrame> Symbolize(std::span<const uint64_t> addresses) const;

  // One sentence when this table resolves nothing, with the way out; empty otherwise.
  const std::string& limitation() const { return limitation_; }

  const SymbolTable& table() const { return table_; }
  // Of the last Refresh.
  const KallsymsStats& stats() const { return stats_; }

 private:
  SymbolTable table_;
  KallsymsStats stats_;
  std::string limitation_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SYMBOLS_SYMBOLIZER_H_
