// SPDX-License-Identifier: Apache-2.0
//
// The stacks of one tracer with their names: what the agent asks. Each stack is symbolized once,
// when it is defined, and keeps its names although its module may be gone later. The symbol table
// is read again only when it has changed and a new stack holds an address that the change can
// concern: the core kernel's addresses never move.
//
// Threading: the thread that calls Tracer::Collect. Bounded: `max_stacks` stacks; those beyond are
// not kept (`uncached` counts them) and stay unknown. Errors: an unreadable table gives unresolved
// frames and a sentence in `limitation`.
#ifndef NODE_AGENT_SYMBOLS_STACK_SYMBOLS_H_
#define NODE_AGENT_SYMBOLS_STACK_SYMBOLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "node-agent/symbols/symbolizer.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

class StackSymbols {
 public:
  // `tracer` must outlive this object.
  explicit StackSymbols(Tracer* tracer, size_t max_stacks = 65536);

  // Takes in the new stacks of a snapshot (an id that is defined anew gets its new meaning). The
  // status tells whether the symbol table could be read when it had to be; names that were found
  // before are kept either way.
  absl::Status Define(const std::vector<StackDefinition>& stacks);

  // Frames of a stack, innermost first; empty when it is not known. Allocates.
  std::vector<SymbolizedFrame> Frames(StackId id) const;
  bool Known(StackId id) const { return stacks_.contains(id); }

  // One sentence when symbols are hidden or unreadable; empty otherwise.
  const std::string& limitation() const;

  size_t size() const { return stacks_.size(); }
  uint64_t refreshes() const { return refreshes_; }
  uint64_t uncached() const { return uncached_; }
  const Symbolizer& symbolizer() const { return symbolizer_; }

 private:
  // A frame in 16 bytes: names are interned, since a few hundred functions make up all stacks.
  struct CompactFrame {
    uint32_t symbol = 0;
    uint32_t module = 0;
    uint64_t offset = 0;
  };
  absl::Status RefreshIfStale();
  bool NeedsNewerTable(const std::vector<SymbolizedFrame>& frames) const;
  uint32_t Intern(const std::string& name);
  void Keep(StackId id, const std::vector<SymbolizedFrame>& frames);

  Tracer* const tracer_;
  const size_t max_stacks_;
  Symbolizer symbolizer_;
  std::string read_limitation_;
  bool loaded_ = false;
  uint64_t generation_ = 0;
  uint64_t refreshes_ = 0;
  uint64_t uncached_ = 0;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, uint32_t> name_ids_;
  absl::flat_hash_map<StackId, std::vector<CompactFrame>> stacks_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SYMBOLS_STACK_SYMBOLS_H_
