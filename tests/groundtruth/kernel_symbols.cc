// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/kernel_symbols.h"

#include <cctype>
#include <sstream>

namespace fleetblame::testing {

KernelSymbols KernelSymbols::Read(std::istream& kallsyms) {
  KernelSymbols symbols;
  std::string line;
  while (std::getline(kallsyms, line)) {
    std::istringstream fields(line);
    uint64_t address = 0;
    char type = 0;
    std::string name;
    if (!(fields >> std::hex >> address >> type >> name)) continue;
    const int kind = std::tolower(type);
    if (address != 0 && (kind == 't' || kind == 'w')) symbols.names_.emplace(address, name);
  }
  return symbols;
}

const std::string& KernelSymbols::Name(uint64_t address) const {
  static const std::string unknown = "?";
  auto after = names_.upper_bound(address);
  return after == names_.begin() ? unknown : std::prev(after)->second;
}

}  // namespace fleetblame::testing
