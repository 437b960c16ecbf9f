// SPDX-License-Identifier: Apache-2.0
//
// The tracer contract on replay: of invented windows, of the same posing as another host, and of a
// recording that the bpf tracer made.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node-agent/tracer/replay/recorder.h"
#include "node-agent/tracer/replay/replay_tracer.h"
#include "node-agent/tracer/replay/synthetic_script.h"
#include "tests/conformance/subject.h"

namespace fleetblame::testing {
namespace {

class ReplaySubject : public Subject {
 public:
  ReplaySubject(std::string path, std::string device, bool traces_every_io,
                agent::ReplayOptions options)
      : path_(std::move(path)),
        device_(std::move(device)),
        traces_every_io_(traces_every_io),
        options_(std::move(options)) {}

  absl::StatusOr<std::unique_ptr<agent::Tracer>> Create() override {
    return agent::CreateReplayTracer(path_, options_);
  }
  absl::Status Work() override { return absl::OkStatus(); }
  std::string device() const override { return device_; }
  bool live() const override { return false; }
  bool traces_every_io() const override { return traces_every_io_; }

 private:
  const std::string path_;
  const std::string device_;
  const bool traces_every_io_;
  const agent::ReplayOptions options_;
};

absl::StatusOr<std::unique_ptr<Subject>> Synthetic(const agent::ReplayOptions& options) {
  std::string path = absl::StrCat(::testing::TempDir(), "/synthetic.rec");
  agent::TracerScript script = agent::MakeSyntheticScript({.windows = 8});
  std::deque<agent::TraceRecord> records = std::exchange(script.trace, {});
  auto scripted = std::make_unique<agent::ScriptedTracer>(std::move(script));
  agent::ScriptedTracer* tracer = scripted.get();
  auto recorder = agent::CreateRecorder(std::move(scripted), path);
  if (!recorder.ok()) return recorder.status();
  absl::Status status = (*recorder)->SetTrace(true);
  // Some records in each window.
  absl::Status end;
  while (status.ok() && end.ok()) {
    for (int i = 0; i < 10 && !records.empty(); ++i) {
      tracer->script().trace.push_back(records.front());
      records.pop_front();
    }
    uint64_t dropped = 0;
    status = (*recorder)->PollTrace(
        absl::ZeroDuration(), [](const agent::TraceRecord&) {}, &dropped);
    end = (*recorder)->Collect().status();
  }
  status.Update((*recorder)->Finish());
  if (!status.ok()) return status;
  return std::make_unique<ReplaySubject>(path, "259:0", /*traces_every_io=*/false, options);
}

// Made by the bpf conformance test on a 6.18 kernel, all of it traced, and scrubbed of names:
//   fleetblame-recording --scrub ext4-bpf.rec --kernel-release 6.18.0 conformance-Bpf.rec
absl::StatusOr<std::unique_ptr<Subject>> Recorded(agent::ReplayOptions options) {
  return std::make_unique<ReplaySubject>("tests/conformance/testdata/ext4-bpf.rec", "loop3",
                                         /*traces_every_io=*/true, std::move(options));
}

}  // namespace

std::vector<SubjectSpec> Subjects() {
  agent::ReplayOptions posing;
  posing.kaslr_shift = 0x1e800000;
  posing.symbol_rewrites = {{"^(ext4|xfs)_.*", "\\0.isra.0"}};
  posing.module_rewrites = {{"^(ext4|jbd2)_", "ext4"}};
  posing.seed = 99;
  posing.load_factor = 3;
  return {
      {"Replay", [] { return Synthetic({}); }},
      {"ReplayPosing", [posing] { return Synthetic(posing); }},
      {"Recorded", [] { return Recorded({}); }},
      {"RecordedPosing", [] { return Recorded({.kaslr_shift = 0x4200000, .seed = 4}); }},
  };
}

}  // namespace fleetblame::testing
