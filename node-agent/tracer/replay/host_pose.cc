// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/host_pose.h"

#include <re2/re2.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kMaxLoadFactor = 1'000'000;
// Moved symbols of different modules must not mix: each module has an area this far away.
constexpr uint64_t kModuleAreaBytes = uint64_t{1} << 40;

absl::StatusOr<std::unique_ptr<re2::RE2>> Compile(const std::string& pattern) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  auto compiled = std::make_unique<re2::RE2>(pattern, options);
  if (!compiled->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("replay: pattern \"", pattern, "\" is malformed: ", compiled->error()));
  }
  return compiled;
}

// Renumbers ids from `first` on within blocks of 256, so that they stay small; a bijection.
uint32_t Permute(uint32_t id, uint32_t first, uint64_t seed) {
  constexpr uint32_t kBlock = 256;
  if (seed == 0 || id < first || id - first >= std::numeric_limits<uint32_t>::max() - 4 * kBlock) {
    return id;
  }
  // Any odd multiplier spreads small seeds over the byte that is used.
  auto key = static_cast<uint32_t>((seed * 0x9e3779b97f4a7c15u) >> 56);
  return ((id - first) ^ key) + first;
}

uint64_t Times(uint64_t value, uint32_t factor) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(value, factor, &product)) return std::numeric_limits<uint64_t>::max();
  return product;
}

SparseHistogram Times(const SparseHistogram& histogram, uint32_t factor) {
  SparseHistogram scaled;
  for (const auto& [bucket, count] : histogram.entries()) scaled.Add(bucket, Times(count, factor));
  return scaled;
}

}  // namespace

HostPose::HostPose() = default;
HostPose::~HostPose() = default;

absl::StatusOr<std::unique_ptr<HostPose>> HostPose::Create(const ReplayOptions& options) {
  if (options.load_factor == 0 || options.load_factor > kMaxLoadFactor) {
    return absl::InvalidArgumentError(
        absl::StrCat("replay: load factor must lie between 1 and ", kMaxLoadFactor));
  }
  std::unique_ptr<HostPose> pose(new HostPose());
  pose->options_ = options;
  for (const SymbolRewrite& rewrite : options.symbol_rewrites) {
    auto compiled = Compile(rewrite.pattern);
    if (!compiled.ok()) return compiled.status();
    std::string error;
    if (!(*compiled)->CheckRewriteString(rewrite.replacement, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("replay: replacement \"", rewrite.replacement, "\" is malformed: ", error));
    }
    pose->symbol_patterns_.push_back(*std::move(compiled));
  }
  for (const ModuleRewrite& rewrite : options.module_rewrites) {
    auto compiled = Compile(rewrite.pattern);
    if (!compiled.ok()) return compiled.status();
    pose->module_patterns_.push_back(*std::move(compiled));
    pose->module_areas_.try_emplace(rewrite.module,
                                    kModuleAreaBytes * (pose->module_areas_.size() + 1));
  }
  return pose;
}

HostPose::Posed HostPose::Pose(const RecordedSymbol& symbol) {
  Posed posed{symbol, symbol.name, symbol.module, static_cast<uint64_t>(options_.kaslr_shift)};
  for (size_t i = 0; i < symbol_patterns_.size(); ++i) {
    re2::RE2::Replace(&posed.name, *symbol_patterns_[i], options_.symbol_rewrites[i].replacement);
  }
  // Modules go by the recorded name, so that rewriting names does not change who moves.
  for (size_t i = 0; i < module_patterns_.size(); ++i) {
    if (!re2::RE2::PartialMatch(symbol.name, *module_patterns_[i])) continue;
    posed.module = options_.module_rewrites[i].module;
    posed.shift = static_cast<uint64_t>(options_.kaslr_shift) - module_areas_.at(posed.module);
    break;
  }
  return posed;
}

bool HostPose::AddSymbols(const std::map<uint64_t, RecordedSymbol>& symbols) {
  bool changed = false;
  for (const auto& [address, symbol] : symbols) {
    auto it = symbols_.find(address);
    if (it != symbols_.end() && it->second.recorded == symbol) continue;
    symbols_.insert_or_assign(address, Pose(symbol));
    changed = true;
  }
  return changed;
}

void HostPose::ClearSymbols() { symbols_.clear(); }

std::string HostPose::Kallsyms() const {
  // What a kernel that hides its symbols would show: the recording has none.
  if (symbols_.empty()) return "0000000000000000 T _text\n";
  std::string text;
  for (const auto& [address, symbol] : symbols_) {
    absl::StrAppendFormat(&text, "%016x t %s", address + symbol.shift, symbol.name);
    if (!symbol.module.empty()) absl::StrAppend(&text, "\t[", symbol.module, "]");
    text.push_back('\n');
  }
  return text;
}

// An address moves with the symbol before it.
uint64_t HostPose::MapAddress(uint64_t address) const {
  if (address == 0) return 0;
  auto it = symbols_.upper_bound(address - 1);
  if (it == symbols_.begin()) return address + static_cast<uint64_t>(options_.kaslr_shift);
  return address + std::prev(it)->second.shift;
}

StackId HostPose::MapStack(StackId id) const { return Permute(id, 2, options_.seed); }
ActorId HostPose::MapActor(ActorId id) const { return Permute(id, 1, options_.seed); }
FileId HostPose::MapFile(FileId id) const { return Permute(id, 1, options_.seed); }

void HostPose::Scale(RowValues* v) const {
  const uint32_t factor = options_.load_factor;
  if (factor == 1) return;
  v->ios = Times(v->ios, factor);
  v->bytes = Times(v->bytes, factor);
  v->wait_ns = Times(v->wait_ns, factor);
  v->io_ns = Times(v->io_ns, factor);
  v->errors = Times(v->errors, factor);
  v->requeues = Times(v->requeues, factor);
  v->wait = Times(v->wait, factor);
  v->io = Times(v->io, factor);
}

void HostPose::Apply(Snapshot* snapshot) const {
  for (Row& row : snapshot->rows) {
    RowKey& k = row.key;
    k.dirtier_stack = MapStack(k.dirtier_stack);
    k.issuer_stack = MapStack(k.issuer_stack);
    k.dirtier_actor = MapActor(k.dirtier_actor);
    k.issuer_actor = MapActor(k.issuer_actor);
    k.file = MapFile(k.file);
    Scale(&row.values);
  }
  for (StackDefinition& s : snapshot->stacks) {
    s.id = MapStack(s.id);
    for (uint64_t& address : s.addresses) address = MapAddress(address);
  }
  for (ActorDefinition& a : snapshot->actors) a.id = MapActor(a.id);
  for (FileDefinition& f : snapshot->files) f.id = MapFile(f.id);
  if (snapshot->tag_waits.has_value()) {
    // Load is bytes and IOs: how scarce tags were does not grow with it.
    for (v1::TagWaitRow& row : *snapshot->tag_waits->mutable_rows()) {
      row.set_intent(MapStack(row.intent()));
      row.set_actor(MapActor(row.actor()));
    }
  }
  const uint32_t factor = options_.load_factor;
  for (Books& b : snapshot->books) {
    b.recorded_bytes = Times(b.recorded_bytes, factor);
    b.lost_bytes = Times(b.lost_bytes, factor);
    b.kernel_bytes = Times(b.kernel_bytes, factor);
    b.recorded_ios = Times(b.recorded_ios, factor);
    b.kernel_ios = Times(b.kernel_ios, factor);
  }
}

void HostPose::Apply(TraceRecord* r) const {
  r->dirtier_stack = MapStack(r->dirtier_stack);
  r->issuer_stack = MapStack(r->issuer_stack);
  r->dirtier_actor = MapActor(r->dirtier_actor);
  r->issuer_actor = MapActor(r->issuer_actor);
  r->file = MapFile(r->file);
}

}  // namespace fleetblame::agent
