// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/tagwait/tag_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "node-agent/tracer/bpf/kernel_btf.h"
#include "node-agent/tracer/tagwait/tag_programs.h"

namespace fleetblame::agent {
namespace {

using State = CapabilityLine::State;

CapabilityLine TagWaitLine(const KernelBtf& kernel, bool infer) {
  CapabilityLine line;
  line.name = "tag waits";
  auto programs = TagPrograms::Load({.infer = infer}, kernel);
  if (!programs.ok()) {
    line.state = State::kDegraded;
    line.meaning = "who sleeps for tags, and who holds them";
    line.cost = "starvation of tags is not seen; nothing else changes";
    line.remedy = std::string(programs.status().message());
    return line;
  }
  const v1::TagWaitSource source = (*programs)->source();
  line.meaning =
      absl::StrCat("who sleeps for tags, and who holds them, seen by ", TagSourceText(source));
  if (source == v1::TAG_WAIT_SOURCE_INFERRED) {
    line.state = State::kDegraded;
    line.cost =
        "a better source: each sleep counts as a wait of its own, waits that did not sleep are not "
        "seen, and a program runs at every context switch";
    line.remedy = absl::StrCat("--infer-tag-waits=false if that is too much; better sources: ",
                               absl::StrJoin((*programs)->refusals(), "; "));
  }
  return line;
}

}  // namespace

std::vector<CapabilityLine> WithTagWaits(std::vector<CapabilityLine> lines, bool wanted,
                                         bool infer) {
  const bool ready = std::none_of(lines.begin(), lines.end(), [](const CapabilityLine& line) {
    return line.state == State::kMissing;
  });
  if (!ready) return lines;
  if (!wanted) {
    CapabilityLine line;
    line.name = "tag waits";
    line.meaning = "not watched (--tag-waits=false)";
    lines.push_back(std::move(line));
    return lines;
  }
  auto kernel = KernelBtf::Load();
  if (kernel.ok()) lines.push_back(TagWaitLine(*kernel, infer));
  return lines;
}

}  // namespace fleetblame::agent
