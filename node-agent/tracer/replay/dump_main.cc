// SPDX-License-Identifier: Apache-2.0
//
// Prints a recording as text: what its tracer was, then every window and trace record, with the
// stacks by name. For a look before a recording is handed on, since it holds names and paths.
//
//   fleetblame-recording FILE
//   fleetblame-recording --scrub COPY FILE
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/intent/intent.h"
#include "common/intent/summary.h"
#include "node-agent/symbols/stack_symbols.h"
#include "node-agent/tracer/replay/replay_tracer.h"
#include "node-agent/tracer/replay/scrub.h"
#include "node-agent/tracer/replay/snapshot_text.h"

namespace fleetblame::agent {
namespace {

void PrintInfo(const TracerInfo& info) {
  std::cout << "kernel " << info.kernel_release << "\nreasons";
  for (const std::string& reason : info.reasons) std::cout << " \"" << reason << "\"";
  std::cout << "\n";
  for (const std::string& limitation : info.limitations) std::cout << limitation << "\n";
}

void PrintStacks(const Snapshot& snapshot, const StackSymbols& symbols, const TracerInfo& info) {
  for (const StackDefinition& stack : snapshot.stacks) {
    v1::Intent intent =
        BuildIntent(symbols.Frames(stack.id), "", info.kernel_release, info.vmlinux_build_id);
    std::cout << "# stack " << stack.id << ": " << IntentSummary(intent) << "\n";
    for (const std::string& frame : intent.frames()) std::cout << "#   " << frame << "\n";
  }
}

absl::Status Print(const std::string& path) {
  auto tracer = CreateReplayTracer(path);
  if (!tracer.ok()) return tracer.status();
  PrintInfo((*tracer)->info());
  absl::Status status = (*tracer)->SetTrace(true);
  StackSymbols symbols(tracer->get());
  uint64_t dropped = 0;
  auto print_trace = [](const TraceRecord& record) { std::cout << TraceRecordText(record); };
  while (status.ok()) {
    status = (*tracer)->PollTrace(absl::ZeroDuration(), print_trace, &dropped);
    if (!status.ok()) break;
    auto snapshot = (*tracer)->Collect();
    status = snapshot.status();
    if (!status.ok()) break;
    (void)symbols.Define(snapshot->stacks);
    std::cout << SnapshotText(*snapshot);
    PrintStacks(*snapshot, symbols, (*tracer)->info());
  }
  if (!absl::IsOutOfRange(status)) return status;
  status = (*tracer)->PollTrace(absl::ZeroDuration(), print_trace, &dropped);
  if (dropped > 0) std::cout << dropped << " trace records were dropped\n";
  return status;
}

}  // namespace
}  // namespace fleetblame::agent

int main(int argc, char** argv) {
  CLI::App app{
      "Prints a recording that fleetblame-agent --record made, or copies it without the names that "
      "it holds."};
  std::string file, scrub;
  fleetblame::agent::ReplayOptions options;
  app.add_option("file", file, "The recording")->required();
  app.add_option("--scrub", scrub,
                 "Write a copy to this file in which commands, cgroups and files have no names");
  app.add_option("--kernel-release", options.kernel_release, "Names another kernel in the copy");
  CLI11_PARSE(app, argc, argv);
  absl::Status status = scrub.empty() ? fleetblame::agent::Print(file)
                                      : fleetblame::agent::ScrubRecording(file, scrub, options);
  if (status.ok()) return 0;
  std::cerr << "fleetblame-recording: " << status.message() << "\n";
  return 1;
}
