// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/stack_symbols.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {

StackSymbols::StackSymbols(Tracer* tracer, size_t max_stacks)
    : tracer_(tracer), max_stacks_(max_stacks) {
  names_.emplace_back();
  name_ids_.emplace("", 0);
}

const std::string& StackSymbols::limitation() const {
  return read_limitation_.empty() ? symbolizer_.limitation() : read_limitation_;
}

absl::Status StackSymbols::Define(const std::vector<StackDefinition>& stacks) {
  if (stacks.empty()) return absl::OkStatus();
  absl::Status status;
  if (!loaded_) status = RefreshIfStale();
  for (const StackDefinition& stack : stacks) {
    std::vector<SymbolizedFrame> frames = symbolizer_.Symbolize(stack.addresses);
    if (NeedsNewerTable(frames) && tracer_->SymbolGeneration() != generation_) {
      status.Update(RefreshIfStale());
      frames = symbolizer_.Symbolize(stack.addresses);
    }
    Keep(stack.id, frames);
  }
  return status;
}

// A change of the table matters only to addresses outside the core kernel. Programs of BPF come and
// go all the time, and their frames are left out of intents anyway.
bool StackSymbols::NeedsNewerTable(const std::vector<SymbolizedFrame>& frames) const {
  return std::any_of(frames.begin(), frames.end(), [](const SymbolizedFrame& f) {
    return f.symbol.empty() || (!f.module.empty() && f.module != "bpf");
  });
}

absl::Status StackSymbols::RefreshIfStale() {
  uint64_t generation = tracer_->SymbolGeneration();
  if (loaded_ && generation == generation_) return absl::OkStatus();
  // Also after a failure: a table that cannot be read is not tried again for each stack.
  loaded_ = true;
  generation_ = generation;
  ++refreshes_;
  auto kallsyms = tracer_->OpenKallsyms();
  absl::Status status = kallsyms.ok() ? symbolizer_.Refresh(**kallsyms) : kallsyms.status();
  read_limitation_.clear();
  if (!status.ok()) {
    read_limitation_ = absl::StrCat("kernel symbols cannot be read (", status.message(),
                                    "): new stacks may show no function names");
  }
  return status;
}

uint32_t StackSymbols::Intern(const std::string& name) {
  auto [it, inserted] = name_ids_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (inserted) names_.push_back(name);
  return it->second;
}

void StackSymbols::Keep(StackId id, const std::vector<SymbolizedFrame>& frames) {
  if (stacks_.size() >= max_stacks_ && !stacks_.contains(id)) {
    ++uncached_;
    return;
  }
  std::vector<CompactFrame> compact;
  compact.reserve(frames.size());
  for (const SymbolizedFrame& f : frames) {
    compact.push_back({Intern(f.symbol), Intern(f.module), f.offset});
  }
  stacks_[id] = std::move(compact);
}

std::vector<SymbolizedFrame> StackSymbols::Frames(StackId id) const {
  std::vector<SymbolizedFrame> frames;
  auto it = stacks_.find(id);
  if (it == stacks_.end()) return frames;
  frames.reserve(it->second.size());
  for (const CompactFrame& f : it->second) {
    frames.push_back({names_[f.symbol], names_[f.module], f.offset});
  }
  return frames;
}

}  // namespace fleetblame::agent
