// SPDX-License-Identifier: Apache-2.0
//
// Chooses what of a symbol table a recording must hold so that its stacks get the same names from
// the copy as from the original: for each address the symbols on both sides of it (the one behind
// ends the function, so that nothing is found where the original finds nothing) and the first
// symbol of its module.
//
// Threading: one thread.
#ifndef NODE_AGENT_TRACER_REPLAY_NEEDED_SYMBOLS_H_
#define NODE_AGENT_TRACER_REPLAY_NEEDED_SYMBOLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "node-agent/symbols/symbol_table.h"
#include "node-agent/tracer/replay/recording.pb.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

class NeededSymbols {
 public:
  // What the addresses of `stacks` need and earlier calls did not give, or gave otherwise; empty
  // message when nothing.
  recording::v1::Symbols Take(const SymbolTable& table, const std::vector<StackDefinition>& stacks);

 private:
  struct Named {
    std::string name;
    std::string module;
    bool operator==(const Named&) const = default;
  };
  void Need(const SymbolTable& table, size_t index, std::map<uint64_t, Named>* fresh);

  std::map<uint64_t, Named> given_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_NEEDED_SYMBOLS_H_
