// SPDX-License-Identifier: Apache-2.0
#include "common/intent/canonical.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "common/intent/frame_class.h"

namespace fleetblame {
namespace {

std::string UnresolvedName(const SymbolizedFrame& frame) {
  if (frame.module.empty()) return std::string(kUnknownFrame);
  return frame.module + absl::StrFormat("+0x%x", frame.offset);
}

// True for the first half of a function that the compiler cut in two: its caller may be the other
// half, which has the same name.
bool IsPartialInline(std::string_view symbol) { return symbol.find(".part.") != symbol.npos; }

// Unresolved frames right inside of tracing code are a BPF program or trampoline of which this
// kernel does not show the symbol. Returns how many innermost frames the tracing code takes up.
size_t CountTracerPrefix(std::span<const ClassifiedFrame> frames) {
  size_t prefix = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (frames[i].kind == FrameKind::kTracer) {
      prefix = i + 1;
    } else if (frames[i].kind != FrameKind::kUnresolved) {
      break;
    }
  }
  return prefix;
}

class StackFolder {
 public:
  explicit StackFolder(std::span<const SymbolizedFrame> frames) {
    raw_.reserve(frames.size());
    for (const SymbolizedFrame& f : frames) raw_.push_back(ClassifyFrame(f));
    raw_.erase(raw_.begin(), raw_.begin() + static_cast<ptrdiff_t>(CountTracerPrefix(raw_)));
    std::erase_if(raw_, [](const ClassifiedFrame& f) { return f.kind == FrameKind::kTracer; });
  }

  CanonicalStack Fold() {
    stack_.frames.reserve(raw_.size());
    size_t i = 0;
    while (i < raw_.size()) {
      switch (raw_[i].kind) {
        case FrameKind::kTracer:
        case FrameKind::kFaultGlue:
          ++i;
          break;
        case FrameKind::kUnresolved:
          stack_.frames.push_back(UnresolvedName(*raw_[i].frame));
          stack_.unsymbolized = true;
          ++i;
          break;
        case FrameKind::kSyscall:
        case FrameKind::kMaybeSyscall:
        case FrameKind::kEntry:
          i = FoldSyscall(i);
          break;
        case FrameKind::kPageFault:
          i = FoldPageFault(i);
          break;
        case FrameKind::kExitToUser:
          // What called this is the way in from user space, by whatever interrupt or call it was.
          stack_.frames.emplace_back(kExitToUserFrame);
          return std::move(stack_);
        case FrameKind::kFork:
          if (i == 0 || raw_[i - 1].kind != FrameKind::kFork) {
            stack_.frames.emplace_back(kForkFrame);
          }
          ++i;
          break;
        case FrameKind::kPlain:
          FoldPlain(i);
          ++i;
          break;
      }
    }
    return std::move(stack_);
  }

 private:
  void FoldPlain(size_t i) {
    bool second_half = i > 0 && raw_[i - 1].kind == FrameKind::kPlain &&
                       raw_[i - 1].name == raw_[i].name &&
                       IsPartialInline(raw_[i - 1].frame->symbol);
    if (!second_half) stack_.frames.emplace_back(raw_[i].name);
  }

  // A run of frames that implement one system call and its entry: the outermost named one says
  // which call it was. Names that only may be a call (ksys_*) count when an entry frame is there.
  size_t FoldSyscall(size_t begin) {
    std::optional<std::string_view> sure, maybe;
    bool entry = false;
    size_t end = begin;
    for (; end < raw_.size(); ++end) {
      if (raw_[end].kind == FrameKind::kSyscall) {
        sure = raw_[end].name;
      } else if (raw_[end].kind == FrameKind::kMaybeSyscall) {
        maybe = raw_[end].name;
      } else if (raw_[end].kind == FrameKind::kEntry) {
        entry = true;
      } else {
        break;
      }
    }
    if (sure.has_value() || (maybe.has_value() && entry)) {
      stack_.frames.push_back(std::string(kSyscallFramePrefix) +
                              std::string(sure.has_value() ? *sure : *maybe));
    } else if (entry) {
      stack_.frames.emplace_back(kUnnamedSyscallFrame);
    } else {
      for (size_t i = begin; i < end; ++i) {
        stack_.frames.emplace_back(StripCompilerDecoration(raw_[i].frame->symbol));
      }
    }
    return end;
  }

  size_t FoldPageFault(size_t begin) {
    stack_.frames.emplace_back(kPageFaultFrame);
    size_t end = begin;
    while (end < raw_.size() &&
           (raw_[end].kind == FrameKind::kPageFault || raw_[end].kind == FrameKind::kFaultGlue ||
            raw_[end].kind == FrameKind::kEntry)) {
      ++end;
    }
    return end;
  }

  std::vector<ClassifiedFrame> raw_;
  CanonicalStack stack_;
};

}  // namespace

std::string_view StripCompilerDecoration(std::string_view symbol) {
  for (std::string_view prefix : {"__pfx_", "__cfi_"}) {
    if (symbol.starts_with(prefix) && symbol.size() > prefix.size()) {
      symbol.remove_prefix(prefix.size());
      break;
    }
  }
  // No C name has a dot in it, so all behind the first one is the compiler's. A leading dot is an
  // assembler's local label.
  size_t dot = symbol.find('.', 1);
  return dot == symbol.npos ? symbol : symbol.substr(0, dot);
}

CanonicalStack Canonicalize(std::span<const SymbolizedFrame> frames) {
  return StackFolder(frames).Fold();
}

}  // namespace fleetblame
