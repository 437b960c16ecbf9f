// SPDX-License-Identifier: Apache-2.0
//
// Canonical frames: what of a kernel stack is the same on every host that does the same thing. Two
// builds of one kernel, other KASLR bases, ext4 built in or as a module, and (for the entry paths)
// two kernel versions give the same list. docs/intent-identity.md is the normative text; a change
// of any rule here is a new kIntentRuleVersion.
//
// Threading: pure functions. Errors: none; what cannot be resolved stays in the list as
// "module+0xoffset" or "0x?".
#ifndef COMMON_INTENT_CANONICAL_H_
#define COMMON_INTENT_CANONICAL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/intent/frame.h"

namespace fleetblame {

// Version of the rules below; the first byte of what an intent id is the hash of.
inline constexpr uint8_t kIntentRuleVersion = 1;

// Names that stand for folded entry paths. A folded system call is kSyscallFramePrefix + its name.
inline constexpr std::string_view kSyscallFramePrefix = "sys_";
inline constexpr std::string_view kUnnamedSyscallFrame = "syscall";
inline constexpr std::string_view kPageFaultFrame = "page_fault";
inline constexpr std::string_view kExitToUserFrame = "exit_to_user_mode";
inline constexpr std::string_view kForkFrame = "ret_from_fork";
// The only frame of an intent whose stack the tracer could not keep (kLostStack).
inline constexpr std::string_view kLostFrame = "[lost]";
// A frame of which nothing is known.
inline constexpr std::string_view kUnknownFrame = "0x?";

struct CanonicalStack {
  std::vector<std::string> frames;  // innermost first
  bool unsymbolized = false;        // at least one frame of `frames` has no name
};

// The name without what compilers add: "__pfx_" and "__cfi_" in front, ".isra.0", ".cold" and all
// other dotted suffixes behind.
std::string_view StripCompilerDecoration(std::string_view symbol);

// Applies all rules to a stack, innermost first.
CanonicalStack Canonicalize(std::span<const SymbolizedFrame> frames);

}  // namespace fleetblame

#endif  // COMMON_INTENT_CANONICAL_H_
