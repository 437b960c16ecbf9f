// SPDX-License-Identifier: Apache-2.0
//
// The sorted table of kernel text symbols and the reader of the kallsyms format that fills it.
//
// Of several names at one address the table keeps one, chosen by the names alone so that it is the
// same on every build (see PreferredAlias). Padding symbols (__pfx_*, __cfi_*) are left out.
//
// Threading: a finished table is immutable and may be read from any thread.
// Bounded: at most kMaxSymbols symbols and kMaxLineBytes a line; the rest is counted and skipped.
#ifndef NODE_AGENT_SYMBOLS_SYMBOL_TABLE_H_
#define NODE_AGENT_SYMBOLS_SYMBOL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fleetblame::agent {

inline constexpr size_t kMaxSymbols = 2'000'000;
inline constexpr size_t kMaxLineBytes = 4096;

// What one reading of kallsyms met.
struct KallsymsStats {
  uint64_t lines = 0;
  uint64_t malformed = 0;     // not "address type name[\t[module]]", or longer than kMaxLineBytes
  uint64_t hidden = 0;        // text symbols with address zero: kptr_restrict
  uint64_t beyond_limit = 0;  // more than kMaxSymbols
};

struct Symbol {
  uint64_t address = 0;
  std::string_view name;    // valid as long as the table
  std::string_view module;  // empty = core kernel
};

// True when `a` is to be shown rather than `b` where both name one address: real functions before
// section markers, then fewer leading underscores, no compiler suffix, shorter, alphabetical.
bool PreferredAlias(std::string_view a, std::string_view b);

class SymbolTable {
 public:
  SymbolTable() = default;

  // Reads text in the format of /proc/kallsyms. Never fails: see `stats` for what was skipped.
  static SymbolTable Read(std::istream& kallsyms, KallsymsStats* stats);

  size_t size() const { return offsets_.size(); }
  size_t memory_bytes() const;

  // `index` < size(); increasing in address.
  Symbol At(size_t index) const;

  // Index of the last symbol at or below `address`.
  std::optional<size_t> Find(uint64_t address) const;

  // The symbol that holds `address`, or none when no function can be that long there: behind the
  // end of the kernel's text, or in a hole between modules.
  std::optional<size_t> FindFunction(uint64_t address) const;

  // When `address` lies among the symbols of one module, the index of that module's first symbol.
  std::optional<size_t> FindModule(uint64_t address) const;

 private:
  friend class SymbolTableBuilder;
  // Symbols whose addresses lie within 4 GiB of each other share a base.
  struct Segment {
    uint64_t base = 0;
    uint32_t first = 0;
  };
  uint64_t AddressAt(size_t index) const;

  std::vector<Segment> segments_;
  std::vector<uint32_t> offsets_;          // from the base of the segment
  std::vector<uint32_t> names_;            // into arena_, NUL-terminated
  std::vector<uint16_t> modules_;          // into module_names_
  std::vector<std::string> module_names_;  // [0] is ""
  std::string arena_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SYMBOLS_SYMBOL_TABLE_H_
