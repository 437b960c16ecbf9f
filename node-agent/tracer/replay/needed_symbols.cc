// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/needed_symbols.h"

#include <optional>

namespace fleetblame::agent {

void NeededSymbols::Need(const SymbolTable& table, size_t index, std::map<uint64_t, Named>* fresh) {
  Symbol symbol = table.At(index);
  Named named{std::string(symbol.name), std::string(symbol.module)};
  auto [it, inserted] = given_.try_emplace(symbol.address, named);
  if (!inserted && it->second == named) return;
  it->second = named;
  (*fresh)[symbol.address] = std::move(named);
}

recording::v1::Symbols NeededSymbols::Take(const SymbolTable& table,
                                           const std::vector<StackDefinition>& stacks) {
  std::map<uint64_t, Named> fresh;
  for (const StackDefinition& stack : stacks) {
    for (uint64_t address : stack.addresses) {
      if (address == 0) continue;
      std::optional<size_t> at = table.Find(address - 1);
      if (at.has_value()) Need(table, *at, &fresh);
      size_t behind = at.has_value() ? *at + 1 : 0;
      if (behind < table.size()) Need(table, behind, &fresh);
      if (!table.FindFunction(address - 1).has_value()) {
        std::optional<size_t> module = table.FindModule(address - 1);
        if (module.has_value()) Need(table, *module, &fresh);
      }
    }
  }
  recording::v1::Symbols message;
  if (fresh.empty()) return message;
  std::map<std::string, uint32_t> modules = {{"", 0}};
  message.add_module_names("");
  for (const auto& [address, named] : fresh) {
    auto [it, inserted] =
        modules.try_emplace(named.module, static_cast<uint32_t>(message.module_names_size()));
    if (inserted) message.add_module_names(named.module);
    message.add_addresses(address);
    message.add_names(named.name);
    message.add_modules(it->second);
  }
  return message;
}

}  // namespace fleetblame::agent
