// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/scrub.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "node-agent/tracer/replay/recorder.h"

namespace fleetblame::agent {
namespace {

// Numbers names in the order in which they come.
class Aliases {
 public:
  explicit Aliases(std::string stem) : stem_(std::move(stem)) {}

  // Nothing stays nothing, and the root cgroup tells nothing.
  void Replace(std::string* name) {
    if (name->empty() || *name == "/") return;
    size_t number = numbers_.try_emplace(*name, numbers_.size() + 1).first->second;
    *name = absl::StrCat(stem_, number);
  }

 private:
  const std::string stem_;
  std::map<std::string, size_t> numbers_;
};

class ScrubbingTracer : public Tracer {
 public:
  explicit ScrubbingTracer(std::unique_ptr<Tracer> inner) : inner_(std::move(inner)) {}

  const TracerInfo& info() const override { return inner_->info(); }
  absl::Status SetDevices(const DeviceSelection& s) override { return inner_->SetDevices(s); }
  absl::Status SetTrace(bool on) override { return inner_->SetTrace(on); }
  absl::Status PollTrace(absl::Duration timeout,
                         const std::function<void(const TraceRecord&)>& sink,
                         uint64_t* dropped) override {
    return inner_->PollTrace(timeout, sink, dropped);
  }
  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override {
    return inner_->OpenKallsyms();
  }
  uint64_t SymbolGeneration() override { return inner_->SymbolGeneration(); }

  absl::StatusOr<Snapshot> Collect() override {
    absl::StatusOr<Snapshot> snapshot = inner_->Collect();
    if (!snapshot.ok()) return snapshot;
    for (ActorDefinition& a : snapshot->actors) {
      // Kernel threads have the names that the kernel gives them.
      if (!a.kernel_thread) commands_.Replace(&a.comm);
      cgroups_.Replace(&a.cgroup_path);
    }
    for (FileDefinition& f : snapshot->files) files_.Replace(&f.path);
    return snapshot;
  }

 private:
  const std::unique_ptr<Tracer> inner_;
  Aliases commands_{"command"};
  Aliases cgroups_{"/cgroup"};
  Aliases files_{"/file"};
};

}  // namespace

absl::Status ScrubRecording(const std::string& from, const std::string& to,
                            const ReplayOptions& options) {
  if (options.speed != 0 || options.loop) {
    return absl::InvalidArgumentError("a copy of a recording is made at full speed and once");
  }
  auto replay = CreateReplayTracer(from, options);
  if (!replay.ok()) return replay.status();
  auto recorder =
      CreateRecorder(std::make_unique<ScrubbingTracer>(*std::move(replay)), to, {.max_bytes = 0});
  if (!recorder.ok()) return recorder.status();
  absl::Status status = (*recorder)->SetTrace(true);
  while (status.ok()) {
    uint64_t dropped = 0;
    status = (*recorder)->PollTrace(
        absl::ZeroDuration(), [](const TraceRecord&) {}, &dropped);
    if (status.ok()) status = (*recorder)->Collect().status();
  }
  if (!absl::IsOutOfRange(status)) return status;
  uint64_t dropped = 0;
  status = (*recorder)->PollTrace(
      absl::ZeroDuration(), [](const TraceRecord&) {}, &dropped);
  if (!status.ok()) return status;
  return (*recorder)->Finish();
}

}  // namespace fleetblame::agent
