// SPDX-License-Identifier: Apache-2.0
//
// What kind of frame a function name is: the tables behind canonical.h. Part of the rule set that
// kIntentRuleVersion numbers.
//
// Threading: pure functions. Errors: none.
#ifndef COMMON_INTENT_FRAME_CLASS_H_
#define COMMON_INTENT_FRAME_CLASS_H_

#include <string_view>

#include "common/intent/frame.h"

namespace fleetblame {

enum class FrameKind {
  kPlain,
  kUnresolved,    // no name
  kTracer,        // tracing, stack walking, trampolines, BPF programs: not part of the stack
  kSyscall,       // implements the system call `name`
  kMaybeSyscall,  // does so when called from an entry frame
  kEntry,         // dispatches system calls
  kPageFault,     // handles a page fault
  kFaultGlue,     // exception entry; says nothing by itself
  kExitToUser,    // work done on the way back to user space
  kFork,          // where a new thread starts
};

struct ClassifiedFrame {
  const SymbolizedFrame* frame = nullptr;
  FrameKind kind = FrameKind::kPlain;
  // Of kSyscall and kMaybeSyscall the name of the call, of kPlain the undecorated function name.
  // Points into `frame` or to a constant.
  std::string_view name;
};

ClassifiedFrame ClassifyFrame(const SymbolizedFrame& frame);

}  // namespace fleetblame

#endif  // COMMON_INTENT_FRAME_CLASS_H_
