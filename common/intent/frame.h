// SPDX-License-Identifier: Apache-2.0
//
// One frame of one kernel's stack after symbolization, before canonicalisation. The same content as
// fleetblame.v1.RawFrame in plain C++, so that the symbolizer need not know the wire.
//
// Plain values; safe from any thread as values are. `offset` is in bytes.
#ifndef COMMON_INTENT_FRAME_H_
#define COMMON_INTENT_FRAME_H_

#include <cstdint>
#include <string>

namespace fleetblame {

struct SymbolizedFrame {
  std::string symbol;   // as in kallsyms, with compiler suffixes; empty = unresolved
  std::string module;   // empty = core kernel, or unknown when `symbol` is empty
  uint64_t offset = 0;  // from the symbol, or from the module's first symbol when unresolved
  bool operator==(const SymbolizedFrame&) const = default;
};

}  // namespace fleetblame

#endif  // COMMON_INTENT_FRAME_H_
