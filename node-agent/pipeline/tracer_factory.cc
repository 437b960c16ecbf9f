// SPDX-License-Identifier: Apache-2.0
#include "node-agent/pipeline/tracer_factory.h"

#include <utility>

#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "node-agent/tracer/replay/recorder.h"
#include "node-agent/tracer/replay/replay_tracer.h"

namespace fleetblame::agent {
namespace {

absl::StatusOr<std::unique_ptr<Tracer>> CreateReplay(const AgentConfig& config) {
  ReplayOptions options;
  options.clock = config.replay.clock == "recorded"  ? ReplayOptions::Clock::kRecorded
                  : config.replay.clock == "end-now" ? ReplayOptions::Clock::kEndNow
                                                     : ReplayOptions::Clock::kStartNow;
  options.loop = config.replay.loop;
  options.seed = config.replay.seed;
  options.kaslr_shift = config.replay.kaslr_shift;
  options.load_factor = config.replay.load_factor;
  for (const auto& [pattern, name] : config.replay.symbol_rewrites) {
    options.symbol_rewrites.push_back({pattern, name});
  }
  for (const auto& [pattern, module] : config.replay.module_rewrites) {
    options.module_rewrites.push_back({pattern, module});
  }
  auto tracer = CreateReplayTracer(config.replay.file, options);
  if (!tracer.ok()) return tracer.status();
  if (!config.devices.empty()) {
    if (auto status = (*tracer)->SetDevices({config.devices}); !status.ok()) return status;
  }
  return tracer;
}

absl::StatusOr<std::unique_ptr<Tracer>> CreateBpf(const AgentConfig& config) {
  const LimitConfig& limits = config.limits;
  BpfTracerOptions options;
  options.max_stacks = limits.max_intents;
  options.max_actors = limits.max_actors;
  options.max_acts = limits.max_acts;
  options.max_pages = limits.max_pages;
  options.max_inodes = limits.max_inodes;
  options.max_rows = limits.max_rows;
  options.max_files = limits.max_files;
  options.max_bios = limits.max_bios;
  options.ttl = limits.ttl;
  options.devices.patterns = config.devices;
  options.sample_above = config.sample_above;
  options.tag_waits = config.tag_waits;
  options.infer_tag_waits = config.infer_tag_waits;
  return CreateBpfTracer(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tracer>> CreateTracer(const AgentConfig& config) {
  auto tracer = config.tracer == TracerKind::kReplay ? CreateReplay(config) : CreateBpf(config);
  if (!tracer.ok() || config.record.empty()) return tracer;
  RecorderOptions options;
  options.max_bytes = config.record_max_bytes;
  auto recorder = CreateRecorder(*std::move(tracer), config.record, options);
  if (!recorder.ok()) return recorder.status();
  return std::unique_ptr<Tracer>(*std::move(recorder));
}

}  // namespace fleetblame::agent
