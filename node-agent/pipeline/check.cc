// SPDX-License-Identifier: Apache-2.0
#include "node-agent/pipeline/check.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/version.h"
#include "node-agent/host/identity.h"
#include "node-agent/host/lock_file.h"
#include "node-agent/spool/file_layer.h"
#include "node-agent/stream/stream_client.h"
#include "node-agent/tracer/bpf/kernel_check.h"
#include "node-agent/tracer/replay/replay_tracer.h"
#include "node-agent/tracer/tagwait/tag_check.h"

namespace fleetblame::agent {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(5);

enum class Mark { kGood, kWarning, kBad };

class Checklist {
 public:
  explicit Checklist(std::ostream& out) : out_(out) {
    colour_ = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  }

  void Section(const std::string& title) { out_ << "\n" << title << "\n"; }

  void Line(Mark mark, const std::string& text, const std::string& more = "",
            const std::string& remedy = "") {
    const char* const word = mark == Mark::kGood ? "ok" : mark == Mark::kWarning ? "!!" : "NO";
    const char* const colour = mark == Mark::kGood      ? "\033[32m"
                               : mark == Mark::kWarning ? "\033[33m"
                                                        : "\033[31m";
    out_ << "  " << (colour_ ? colour : "") << word << (colour_ ? "\033[0m" : "") << "  " << text
         << "\n";
    if (!more.empty()) out_ << "        " << more << "\n";
    if (!remedy.empty()) out_ << "        to do: " << remedy << "\n";
    good_ = good_ && mark != Mark::kBad;
  }

  bool good() const { return good_; }

 private:
  std::ostream& out_;
  bool colour_ = false;
  bool good_ = true;
};

void CheckTracing(const AgentConfig& config, Checklist& list) {
  if (config.tracer == TracerKind::kReplay) {
    list.Section("Recording");
    const auto tracer = CreateReplayTracer(config.replay.file);
    if (tracer.ok()) {
      list.Line(Mark::kGood, absl::StrCat(config.replay.file, " can be played"));
    } else {
      list.Line(Mark::kBad, std::string(tracer.status().message()));
    }
    return;
  }
  list.Section("Kernel " + ReadKernelRelease());
  const auto lines = CheckKernel();
  if (!lines.ok()) {
    list.Line(Mark::kBad, std::string(lines.status().message()));
    return;
  }
  for (const CapabilityLine& line : WithTagWaits(*lines, config.tag_waits, config.infer_tag_waits)) {
    const Mark mark = line.state == CapabilityLine::State::kYes        ? Mark::kGood
                      : line.state == CapabilityLine::State::kDegraded ? Mark::kWarning
                                                                       : Mark::kBad;
    list.Line(mark, line.meaning.empty() ? line.name : absl::StrCat(line.name, ": ", line.meaning),
              line.cost.empty() ? "" : absl::StrCat("without it: ", line.cost), line.remedy);
  }
}

// Makes the directory and writes into it, as a start would, and leaves nothing of that behind.
absl::Status CheckStateDirectory(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<fs::path> made;  // the innermost first
  for (fs::path path = fs::absolute(directory, ignored).lexically_normal();
       !path.empty() && !fs::exists(path, ignored); path = path.parent_path()) {
    if (path.has_filename()) made.push_back(path);
  }
  FileLayer& files = PosixFileLayer();
  const std::string probe = directory + "/check.probe";
  absl::Status status = files.CreateDirectories(directory);
  if (status.ok()) status = WriteFileAtomically(files, probe, "check\n");
  files.Remove(probe).IgnoreError();
  for (const fs::path& path : made) fs::remove(path, ignored);  // only if it is empty
  return status;
}

void CheckState(const AgentConfig& config, Checklist& list) {
  list.Section("This host");
  const auto host_id = config.host_id.empty() ? DeriveHostId({.state_directory = config.state_dir})
                                              : absl::StatusOr<std::string>(config.host_id);
  if (host_id.ok()) {
    list.Line(Mark::kGood, absl::StrCat("host id ", *host_id));
  } else {
    list.Line(Mark::kBad, std::string(host_id.status().message()));
  }
  const absl::Status status = CheckStateDirectory(config.state_dir);
  if (status.ok()) {
    list.Line(Mark::kGood, absl::StrCat("state directory ", config.state_dir, " can be written"));
  } else {
    list.Line(Mark::kBad, std::string(status.message()), "",
              "run as root, or give a writable --state-dir");
  }
  const auto lock = LockFile::Take(config.lock_file, "this host");
  if (lock.ok()) {
    list.Line(Mark::kGood, "no other agent runs on this host");
  } else {
    list.Line(Mark::kWarning, std::string(lock.status().message()));
  }
}

void CheckAggregator(const AgentConfig& config, Checklist& list) {
  list.Section("Aggregator");
  if (config.aggregator.empty()) {
    list.Line(Mark::kWarning, "no --aggregator is configured, so none was tried");
    return;
  }
  const absl::Status status = ProbeAggregator(config.aggregator, config.tls, kProbeTimeout);
  if (status.ok()) {
    list.Line(Mark::kGood, absl::StrCat(config.aggregator, " answers",
                                        config.tls.enabled() ? " over TLS" : " (without TLS)"));
  } else {
    list.Line(Mark::kBad, std::string(status.message()));
  }
}

void PrintConfiguration(const AgentConfig& config, std::ostream& out) {
  out << "fleetblame-agent " << kVersion << "\n\nConfiguration\n";
  auto line = [&](const char* name, const std::string& value) {
    out << "      " << name << " = " << value << "\n";
  };
  line("aggregator", config.aggregator.empty() ? "(none)" : config.aggregator);
  line("devices", config.devices.empty() ? "all" : absl::StrJoin(config.devices, ","));
  line("window", absl::FormatDuration(config.window));
  line("state-dir", config.state_dir);
  line("spool-max-bytes", absl::StrCat(config.spool_max_bytes));
  line("label", config.labels.empty()
                    ? "(none)"
                    : absl::StrJoin(config.labels, ",", absl::PairFormatter("=")));
}

}  // namespace

bool RunCheck(const AgentConfig& config, std::ostream& out) {
  PrintConfiguration(config, out);
  Checklist list(out);
  CheckTracing(config, list);
  CheckState(config, list);
  CheckAggregator(config, list);
  out << (list.good() ? "\nEverything that is needed is there.\n"
                      : "\nSomething that is needed is missing; see the lines marked NO.\n");
  return list.good();
}

}  // namespace fleetblame::agent
