// SPDX-License-Identifier: Apache-2.0
#include "common/intent/intent.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/absl_view.h"
#include "common/intent/canonical.h"

namespace fleetblame {
namespace {

// Lengths stand before the bytes, 32 bits little endian, so that no two lists give the same input.
void AppendLength(uint32_t length, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(length >> shift));
}

void AppendText(std::string_view text, std::string* out) {
  AppendLength(static_cast<uint32_t>(text.size()), out);
  out->append(text);
}

std::string HashOf(std::string_view input) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(input.data(), input.size()));
  static_assert(sizeof(canonical.digest) == kIntentIdBytes);
  return std::string(reinterpret_cast<const char*>(canonical.digest), kIntentIdBytes);
}

v1::Intent WithCanonicalStack(CanonicalStack stack, std::string_view modifier) {
  v1::Intent intent;
  intent.set_modifier(std::string(modifier));
  for (std::string& frame : stack.frames) intent.add_frames(std::move(frame));
  intent.set_unsymbolized(stack.unsymbolized);
  intent.set_intent_id(ComputeIntentId(intent));
  return intent;
}

}  // namespace

std::string ComputeIntentId(const v1::Intent& intent) {
  std::string input;
  input.push_back(static_cast<char>(kIntentRuleVersion));
  AppendText(intent.modifier(), &input);
  AppendLength(static_cast<uint32_t>(intent.frames_size()), &input);
  for (const std::string& frame : intent.frames()) AppendText(frame, &input);
  return HashOf(input);
}

v1::Intent BuildIntent(std::span<const SymbolizedFrame> frames, std::string_view modifier,
                       std::string_view kernel_release, std::string_view build_id) {
  v1::Intent intent = WithCanonicalStack(Canonicalize(frames), modifier);
  v1::IntentVariant* variant = intent.add_variants();
  variant->set_kernel_release(std::string(kernel_release));
  variant->set_vmlinux_build_id(std::string(build_id));
  for (const SymbolizedFrame& frame : frames) {
    v1::RawFrame* raw = variant->add_frames();
    raw->set_symbol(frame.symbol);
    raw->set_module(frame.module);
    raw->set_offset(frame.offset);
  }
  return intent;
}

v1::Intent BuildLostIntent(std::string_view modifier) {
  CanonicalStack stack;
  stack.frames.emplace_back(kLostFrame);
  return WithCanonicalStack(std::move(stack), modifier);
}

std::string IntentIdHex(std::string_view id) { return absl::BytesToHexString(ToAbsl(id)); }

bool SameIntent(const v1::Intent& a, const v1::Intent& b) {
  return a.modifier() == b.modifier() && a.frames_size() == b.frames_size() &&
         std::equal(a.frames().begin(), a.frames().end(), b.frames().begin());
}

}  // namespace fleetblame
