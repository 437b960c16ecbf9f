// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/symbol_table.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "node-agent/symbols/kallsyms_line.h"

namespace fleetblame::agent {
namespace {

// No kernel function is longer; an address further away from every symbol lies in a hole. Core
// functions written in assembler can be long.
constexpr uint64_t kMaxCoreFunctionBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxModuleFunctionBytes = uint64_t{1} << 16;

// Labels of the linker script, not functions.
bool IsSectionMarker(std::string_view name) {
  return name.ends_with("_text_start") || name.ends_with("_text_end") || name == "_text" ||
         name == "_stext" || name == "_etext" || name == "_sinittext" || name == "_einittext" ||
         name == "__init_begin" || name == "__init_end" || name == "_end" || name == "_sdata";
}

// What lies at and behind these is no code.
bool EndsText(std::string_view name) { return name == "_etext" || name == "_einittext"; }

bool IsPadding(std::string_view name) {
  return name.starts_with("__pfx_") || name.starts_with("__cfi_");
}

size_t LeadingUnderscores(std::string_view name) {
  size_t n = name.find_first_not_of('_');
  return n == name.npos ? name.size() : n;
}

}  // namespace

bool PreferredAlias(std::string_view a, std::string_view b) {
  auto rank = [](std::string_view name) {
    bool decorated = name.find('.', 1) != name.npos;
    return std::tuple(EndsText(name) ? 0 : 1, IsSectionMarker(name), LeadingUnderscores(name),
                      decorated, name.size(), name);
  };
  return rank(a) < rank(b);
}

// Collects symbols in file order, then sorts, drops aliases and packs.
class SymbolTableBuilder {
 public:
  // False when the table is full.
  bool Add(const KallsymsLine& line) {
    if (entries_.size() >= kMaxSymbols || table_.arena_.size() > kMaxArenaBytes) return false;
    entries_.push_back(
        {line.address, static_cast<uint32_t>(table_.arena_.size()), ModuleIndex(line.module)});
    table_.arena_.append(line.name);
    table_.arena_.push_back('\0');
    return true;
  }

  SymbolTable Build() && {
    std::sort(entries_.begin(), entries_.end(), [this](const Entry& a, const Entry& b) {
      if (a.address != b.address) return a.address < b.address;
      std::string_view left = Name(a), right = Name(b);
      return left != right ? PreferredAlias(left, right) : a.module < b.module;
    });
    auto last = std::unique(entries_.begin(), entries_.end(),
                            [](const Entry& a, const Entry& b) { return a.address == b.address; });
    entries_.erase(last, entries_.end());
    table_.offsets_.reserve(entries_.size());
    table_.names_.reserve(entries_.size());
    table_.modules_.reserve(entries_.size());
    for (const Entry& e : entries_) Append(e);
    table_.arena_.shrink_to_fit();
    return std::move(table_);
  }

 private:
  struct Entry {
    uint64_t address;
    uint32_t name;
    uint16_t module;
  };
  static constexpr size_t kMaxArenaBytes = size_t{1} << 28;
  static constexpr size_t kMaxModules = std::numeric_limits<uint16_t>::max();

  std::string_view Name(const Entry& e) const { return table_.arena_.c_str() + e.name; }

  // Modules beyond the limit count as the core kernel: names stay right, only the module is lost.
  uint16_t ModuleIndex(std::string_view module) {
    if (table_.module_names_.empty()) table_.module_names_.emplace_back();
    if (module.empty()) return 0;
    // Lines of one module stand together.
    if (table_.module_names_[last_module_] == module) return last_module_;
    auto [it, inserted] = module_ids_.try_emplace(
        std::string(module), static_cast<uint16_t>(table_.module_names_.size()));
    if (inserted) {
      if (table_.module_names_.size() > kMaxModules) {
        module_ids_.erase(it);
        return 0;
      }
      table_.module_names_.emplace_back(module);
    }
    last_module_ = it->second;
    return last_module_;
  }

  void Append(const Entry& e) {
    if (table_.segments_.empty() ||
        e.address - table_.segments_.back().base > std::numeric_limits<uint32_t>::max()) {
      table_.segments_.push_back({e.address, static_cast<uint32_t>(table_.offsets_.size())});
    }
    table_.offsets_.push_back(static_cast<uint32_t>(e.address - table_.segments_.back().base));
    table_.names_.push_back(e.name);
    table_.modules_.push_back(e.module);
  }

  SymbolTable table_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, uint16_t> module_ids_;
  uint16_t last_module_ = 0;
};

SymbolTable SymbolTable::Read(std::istream& kallsyms, KallsymsStats* stats) {
  *stats = KallsymsStats();
  SymbolTableBuilder builder;
  LineReader reader(kallsyms, kMaxLineBytes);
  std::string_view text;
  bool whole = true;
  while (reader.Next(&text, &whole)) {
    ++stats->lines;
    std::optional<KallsymsLine> line;
    if (whole) line = ParseKallsymsLine(text);
    if (!line.has_value()) {
      ++stats->malformed;
      continue;
    }
    if (!line->is_text || IsPadding(line->name)) continue;
    if (line->address == 0) {
      ++stats->hidden;
      continue;
    }
    if (!builder.Add(*line)) ++stats->beyond_limit;
  }
  return std::move(builder).Build();
}

size_t SymbolTable::memory_bytes() const {
  size_t bytes = segments_.capacity() * sizeof(Segment) + offsets_.capacity() * sizeof(uint32_t) +
                 names_.capacity() * sizeof(uint32_t) + modules_.capacity() * sizeof(uint16_t) +
                 arena_.capacity();
  for (const std::string& m : module_names_) bytes += sizeof(m) + m.capacity();
  return bytes;
}

uint64_t SymbolTable::AddressAt(size_t index) const {
  auto it = std::upper_bound(segments_.begin(), segments_.end(), index,
                             [](size_t i, const Segment& s) { return i < s.first; });
  return std::prev(it)->base + offsets_[index];
}

Symbol SymbolTable::At(size_t index) const {
  return {AddressAt(index), arena_.c_str() + names_[index], module_names_[modules_[index]]};
}

std::optional<size_t> SymbolTable::Find(uint64_t address) const {
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), address,
                                  [](uint64_t a, const Segment& s) { return a < s.base; });
  if (segment == segments_.begin()) return std::nullopt;
  auto end = segment == segments_.end() ? offsets_.end() : offsets_.begin() + segment->first;
  --segment;
  auto begin = offsets_.begin() + segment->first;
  uint64_t distance = address - segment->base;
  auto offset =
      static_cast<uint32_t>(std::min<uint64_t>(distance, std::numeric_limits<uint32_t>::max()));
  // The first symbol of a segment has offset 0, so there is always one at or below.
  auto it = std::upper_bound(begin, end, offset);
  return static_cast<size_t>(it - offsets_.begin()) - 1;
}

std::optional<size_t> SymbolTable::FindFunction(uint64_t address) const {
  std::optional<size_t> index = Find(address);
  if (!index.has_value()) return std::nullopt;
  Symbol symbol = At(*index);
  uint64_t limit = symbol.module.empty() ? kMaxCoreFunctionBytes : kMaxModuleFunctionBytes;
  if (address - symbol.address >= limit || EndsText(symbol.name)) return std::nullopt;
  return index;
}

std::optional<size_t> SymbolTable::FindModule(uint64_t address) const {
  std::optional<size_t> index = Find(address);
  if (!index.has_value() || *index + 1 >= size()) return std::nullopt;
  uint16_t module = modules_[*index];
  if (module == 0 || modules_[*index + 1] != module) return std::nullopt;
  size_t first = *index;
  while (first > 0 && modules_[first - 1] == module) --first;
  return first;
}

}  // namespace fleetblame::agent
