// SPDX-License-Identifier: Apache-2.0
//
// A Tracer for tests that says what it is told to: snapshots and trace records from lists, a symbol
// table from a string. It keeps the contract only as far as its script does.
//
// Threading: as Tracer; fill the script before the tracer is used.
#ifndef NODE_AGENT_TRACER_REPLAY_SCRIPTED_TRACER_H_
#define NODE_AGENT_TRACER_REPLAY_SCRIPTED_TRACER_H_

#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

struct TracerScript {
  TracerInfo info;
  std::string kallsyms;
  absl::Status kallsyms_status;
  uint64_t symbol_generation = 1;
  std::deque<Snapshot> snapshots;
  std::deque<TraceRecord> trace;  // handed over by the next PollTrace while tracing is on
  uint64_t trace_dropped = 0;     // added to *dropped by the next PollTrace
};

class ScriptedTracer : public Tracer {
 public:
  explicit ScriptedTracer(TracerScript script) : script_(std::move(script)) {}

  // Tests change the script between calls.
  TracerScript& script() { return script_; }
  int kallsyms_opened() const { return kallsyms_opened_; }

  const TracerInfo& info() const override { return script_.info; }
  absl::Status SetDevices(const DeviceSelection& selection) override {
    for (const std::string& p : selection.patterns) {
      if (p == "nosuch") return absl::NotFoundError("device \"nosuch\" does not exist");
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Snapshot> Collect() override {
    if (script_.snapshots.empty()) return absl::OutOfRangeError("script is over");
    Snapshot s = std::move(script_.snapshots.front());
    script_.snapshots.pop_front();
    return s;
  }
  absl::Status SetTrace(bool on) override {
    trace_ = on;
    return absl::OkStatus();
  }
  absl::Status PollTrace(absl::Duration, const std::function<void(const TraceRecord&)>& sink,
                         uint64_t* dropped) override {
    if (!trace_) return absl::OkStatus();
    while (!script_.trace.empty()) {
      TraceRecord r = std::move(script_.trace.front());
      script_.trace.pop_front();
      sink(r);
    }
    *dropped += script_.trace_dropped;
    script_.trace_dropped = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override {
    ++kallsyms_opened_;
    if (!script_.kallsyms_status.ok()) return script_.kallsyms_status;
    return std::make_unique<std::istringstream>(script_.kallsyms);
  }
  uint64_t SymbolGeneration() override { return script_.symbol_generation; }

 private:
  TracerScript script_;
  bool trace_ = false;
  int kallsyms_opened_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_SCRIPTED_TRACER_H_
