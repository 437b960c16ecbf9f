// SPDX-License-Identifier: Apache-2.0
//
// What the tracer costs, measured so that the answer can be trusted on a noisy machine whose CPUs
// the classic benchmark leaves half idle:
//   * judged by busy CPU time per IO (cpu_meter.h), not by throughput alone;
//   * short runs, off and on alternating, so that drift meets both; each round also has a second
//   run
//     without anything (the off/off line says how far to trust the rest) and one with what people
//     use instead: a bpftrace line that counts the stack of every dirtied page, or biosnoop;
//   * medians of the ratios within a round, with their range.
//
//   bazel run //tests/bench:overhead -- --pairs 4 --jobs randwrite-direct
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/bench/overhead/bpf_programs.h"
#include "tests/bench/overhead/cpu_meter.h"
#include "tests/bench/overhead/footprint.h"
#include "tests/bench/overhead/jobs.h"
#include "tests/bench/overhead/observer.h"
#include "tests/bench/overhead/ratios.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

struct Options {
  int pairs = 12;
  double seconds = 3;
  std::vector<std::string> jobs;
  std::string output = "table";
  std::string agent;  // command line of the real agent; empty = the tracer in this process
  bool rivals = true;
  uint32_t sample_above = 10000;  // the default of the agent
  bool programs = true;
  int footprint_iops = 10000;  // 0 = leave it out
};

// The bars, as ratios to nothing attached.
constexpr double kDirectCpuBar = 1.04;
constexpr double kDirectThroughputBar = 0.95;
constexpr double kBufferedCpuBar = 1.06;
constexpr double kBufferedThroughputBar = 0.92;
constexpr double kCoreShareBar = 0.01;
constexpr uint64_t kResidentBar = uint64_t{64} << 20;

struct Run {
  double busy_ns_per_io = 0;
  double attributed_ns_per_io = 0;
  double ios_per_second = 0;
  double foreign_share = 0;  // of the machine: busy but not attributed
  Observation observation;
};

struct Condition {
  std::string name;
  Observer* observer;
};

struct JobReport {
  std::string job;
  bool direct = true;
  std::map<std::string, std::vector<Run>> runs;  // by condition, one a round
  std::vector<BpfProgram> programs;              // from the separate run
  uint64_t programs_ios = 0;
  Observation programs_observation;
};

absl::StatusOr<Run> RunOnce(JobSite* site, CpuMeter* meter, Observer* observer, double seconds) {
  absl::Status status = site->Settle();
  if (status.ok()) status = observer->Start(site->disk());
  if (!status.ok()) return status;
  meter->Start();
  const uint64_t observer_before = observer->ChildCpuNs();
  auto result = site->Run(seconds);
  const uint64_t observer_after = observer->ChildCpuNs();
  const CpuUse use = meter->Stop();
  auto observation = observer->Stop();
  if (!result.ok()) return result.status();
  if (!observation.ok()) return observation.status();
  const double attributed = static_cast<double>(use.attributed_ns) +
                            static_cast<double>(result->cpu_ns) +
                            static_cast<double>(observer_after - observer_before);
  Run run;
  run.busy_ns_per_io = static_cast<double>(use.busy_ns) / result->ios;
  run.attributed_ns_per_io = attributed / result->ios;
  run.ios_per_second = result->ios / result->seconds;
  run.foreign_share = (static_cast<double>(use.busy_ns) - attributed) /
                      (static_cast<double>(use.wall_ns) * sysconf(_SC_NPROCESSORS_ONLN));
  run.observation = *std::move(observation);
  return run;
}

std::unique_ptr<Observer> OurObserver(const Options& options) {
  if (!options.agent.empty()) {
    return ProgramObserver(absl::StrSplit(options.agent, ' ', absl::SkipEmpty()));
  }
  return TracerObserver(
      [above = options.sample_above](const std::string& disk) {
        agent::BpfTracerOptions tracer_options;
        tracer_options.sample_above = above;
        tracer_options.devices.patterns = {disk};
        return agent::CreateBpfTracer(tracer_options);
      },
      absl::Seconds(1));
}

// What people run today for the same question: the stack of every dirtied page; or a line for every
// request, as biosnoop prints it (biosnoop itself needs kprobes or fentry, which not every kernel
// has).
constexpr char kCountStacks[] =
    "tracepoint:writeback:writeback_dirty_folio { @[kstack] = count(); }";
constexpr char kPrintRequests[] =
    "tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; } "
    "tracepoint:block:block_rq_complete /@start[args->dev, args->sector]/ { "
    "printf(\"%d %s %d %d %d\\n\", pid, comm, args->sector, args->nr_sector, "
    "nsecs - @start[args->dev, args->sector]); delete(@start[args->dev, args->sector]); }";

std::unique_ptr<Observer> RivalFor(const Job& job) {
  return ProgramObserver({"bpftrace", "-e", job.direct ? kPrintRequests : kCountStacks});
}

const char* RivalName(bool direct) { return direct ? "biosnoop-like" : "bpftrace stacks"; }

// A rival that this kernel does not carry is left out, and said to be.
bool RivalRuns(const Job& job, const std::string& disk) {
  auto rival = RivalFor(job);
  absl::Status status = rival->Start(disk);
  if (status.ok()) status = rival->Stop().status();
  if (!status.ok()) {
    std::fprintf(stderr, "%s: no comparison with %s: %s\n", job.name.c_str(), RivalName(job.direct),
                 status.ToString().c_str());
  }
  return status.ok();
}

// One more run with run statistics on: how often each program ran, and for how long.
absl::Status CountPrograms(JobSite* site, Observer* ours, double seconds, JobReport* report) {
  const auto before = ListBpfPrograms();
  auto stats = BpfRunStats::Enable();
  if (!stats.ok()) return stats.status();
  absl::Status status = site->Settle();
  if (status.ok()) status = ours->Start(site->disk());
  if (!status.ok()) return status;
  auto result = site->Run(seconds);
  for (const auto& [id, program] : ListBpfPrograms()) {
    if (!before.contains(id) && program.runs + program.misses > 0)
      report->programs.push_back(program);
  }
  auto observation = ours->Stop();
  if (!result.ok()) return result.status();
  if (!observation.ok()) return observation.status();
  report->programs_ios = result->ios;
  report->programs_observation = *std::move(observation);
  std::sort(report->programs.begin(), report->programs.end(),
            [](const BpfProgram& a, const BpfProgram& b) { return a.run_ns > b.run_ns; });
  return absl::OkStatus();
}

absl::StatusOr<JobReport> RunJob(const Job& job, const Options& options) {
  auto site = JobSite::Create(job);
  if (!site.ok()) return site.status();
  auto none = NoObserver();
  auto ours = OurObserver(options);
  auto rival = RivalFor(job);
  std::vector<Condition> conditions = {
      {"off", none.get()}, {"on", ours.get()}, {"off2", none.get()}};
  if (options.rivals && RivalRuns(job, (*site)->disk()))
    conditions.push_back({"rival", rival.get()});

  JobReport report;
  report.job = job.name;
  report.direct = job.direct;
  {
    auto meter = CpuMeter::Create();
    if (!meter.ok()) return meter.status();
    // Warms caches and brings the loop driver's workers into being; not counted.
    auto warm = RunOnce(site->get(), meter->get(), none.get(), 1);
    if (!warm.ok()) return warm.status();
    for (int round = 0; round < options.pairs; ++round) {
      for (const Condition& condition : conditions) {
        auto run = RunOnce(site->get(), meter->get(), condition.observer, options.seconds);
        if (!run.ok()) {
          return absl::Status(run.status().code(), absl::StrCat(job.name, ", ", condition.name,
                                                                ": ", run.status().message()));
        }
        report.runs[condition.name].push_back(*std::move(run));
      }
      // The next round goes the other way, so that no condition always follows the same other.
      std::reverse(conditions.begin(), conditions.end());
      std::fprintf(stderr, "%s: round %d of %d\n", job.name.c_str(), round + 1, options.pairs);
    }
  }
  if (options.programs && options.agent.empty()) {
    absl::Status status = CountPrograms(site->get(), ours.get(), options.seconds, &report);
    if (!status.ok()) return status;
  }
  return report;
}

Summary Ratio(const JobReport& report, const std::string& condition, double Run::*field) {
  std::vector<double> ratios;
  auto found = report.runs.find(condition);
  if (found == report.runs.end()) return Summary();
  const std::vector<Run>& base = report.runs.at("off");
  for (size_t i = 0; i < found->second.size(); ++i) {
    ratios.push_back(found->second[i].*field / base[i].*field);
  }
  return Summarize(ratios);
}

Summary Values(const JobReport& report, const std::string& condition, double Run::*field) {
  std::vector<double> values;
  for (const Run& run : report.runs.at(condition)) values.push_back(run.*field);
  return Summarize(values);
}

std::string Text(const Summary& summary) {
  return absl::StrFormat("%.3f [%.3f..%.3f]", summary.median, summary.low, summary.high);
}

double MedianForeign(const JobReport& report) {
  std::vector<double> values;
  for (const auto& [condition, runs] : report.runs) {
    for (const Run& run : runs) values.push_back(run.foreign_share);
  }
  return Summarize(values).median;
}

void PrintRatios(const JobReport& report, const char* label, const std::string& condition) {
  if (!report.runs.contains(condition)) return;
  std::printf("  %-16s cpu/io %s   own cpu/io %s   throughput %s\n", label,
              Text(Ratio(report, condition, &Run::busy_ns_per_io)).c_str(),
              Text(Ratio(report, condition, &Run::attributed_ns_per_io)).c_str(),
              Text(Ratio(report, condition, &Run::ios_per_second)).c_str());
}

void PrintVerdict(const JobReport& report) {
  const double cpu_bar = report.direct ? kDirectCpuBar : kBufferedCpuBar;
  const double throughput_bar = report.direct ? kDirectThroughputBar : kBufferedThroughputBar;
  const double cpu = Ratio(report, "on", &Run::busy_ns_per_io).median;
  const double throughput = Ratio(report, "on", &Run::ios_per_second).median;
  std::printf("  %-18s cpu/io %.3f (bar %.2f: %s)   throughput %.3f (bar %.2f: %s)\n",
              report.job.c_str(), cpu, cpu_bar, cpu <= cpu_bar ? "met" : "MISSED", throughput,
              throughput_bar, throughput >= throughput_bar ? "met" : "MISSED");
}

void PrintPrograms(const JobReport& report) {
  if (report.programs.empty()) return;
  double total = 0;
  for (const BpfProgram& program : report.programs) {
    total += static_cast<double>(program.run_ns) / report.programs_ios;
  }
  std::printf("  BPF programs, in a run of their own (%.0f ns an IO, counting included):\n", total);
  for (const BpfProgram& program : report.programs) {
    // What is listed below a tenth of a nanosecond an IO only makes the list long.
    if (program.run_ns * 10 < report.programs_ios && program.misses == 0) continue;
    std::printf("    %-20s %9.3f runs an IO %8.0f ns a run %8.1f ns an IO%s\n",
                program.name.c_str(), static_cast<double>(program.runs) / report.programs_ios,
                static_cast<double>(program.run_ns) / program.runs,
                static_cast<double>(program.run_ns) / report.programs_ios,
                program.misses == 0 ? "" : absl::StrFormat("  missed %d", program.misses).c_str());
  }
}

void AddLosses(const Observation& seen, std::map<std::string, uint64_t>* losses) {
  (*losses)["lost bytes"] += seen.lost_bytes;
  if (seen.recorded_bytes + seen.lost_bytes < seen.kernel_bytes) {
    (*losses)["bytes missing in the books"] +=
        seen.kernel_bytes - seen.recorded_bytes - seen.lost_bytes;
  }
  for (const auto& [name, count] : seen.losses) (*losses)[name] += count;
}

void PrintLosses(const JobReport& report) {
  std::map<std::string, uint64_t> losses;
  for (const Run& run : report.runs.at("on")) AddLosses(run.observation, &losses);
  AddLosses(report.programs_observation, &losses);
  std::string text;
  for (const auto& [name, count] : losses) {
    if (count != 0) absl::StrAppendFormat(&text, " %s %d,", name, count);
  }
  if (!text.empty()) std::printf("  counted losses  %s\n", text.substr(0, text.size() - 1).c_str());
}

void PrintTable(const JobReport& report) {
  std::printf("%s: %.0f ns of CPU an IO (own %.0f), %.0f IO/s without anything\n",
              report.job.c_str(), Values(report, "off", &Run::busy_ns_per_io).median,
              Values(report, "off", &Run::attributed_ns_per_io).median,
              Values(report, "off", &Run::ios_per_second).median);
  PrintRatios(report, "on : off", "on");
  PrintRatios(report, "off : off", "off2");
  PrintRatios(report, RivalName(report.direct), "rival");
  PrintVerdict(report);
  const double foreign = MedianForeign(report);
  if (foreign > 0.02) {
    std::printf(
        "  Others used %.0f %% of this machine meanwhile: cpu/io is blurred by them, own "
        "cpu/io is not.\n",
        100 * foreign);
  }
  PrintLosses(report);
  PrintPrograms(report);
  std::fflush(stdout);
}

nlohmann::json ToJson(const Summary& summary) {
  return {{"median", summary.median},
          {"low", summary.low},
          {"high", summary.high},
          {"pairs", summary.count}};
}

nlohmann::json ToJson(const JobReport& report) {
  nlohmann::json json = {{"job", report.job},
                         {"off_cpu_ns_per_io", Values(report, "off", &Run::busy_ns_per_io).median},
                         {"off_ios_per_second", Values(report, "off", &Run::ios_per_second).median},
                         {"foreign_cpu_share", MedianForeign(report)}};
  for (const char* condition : {"on", "off2", "rival"}) {
    if (!report.runs.contains(condition)) continue;
    json["ratios"][condition] = {
        {"cpu_per_io", ToJson(Ratio(report, condition, &Run::busy_ns_per_io))},
        {"own_cpu_per_io", ToJson(Ratio(report, condition, &Run::attributed_ns_per_io))},
        {"throughput", ToJson(Ratio(report, condition, &Run::ios_per_second))}};
  }
  for (const BpfProgram& program : report.programs) {
    json["programs"].push_back({{"name", program.name},
                                {"runs", program.runs},
                                {"run_ns", program.run_ns},
                                {"misses", program.misses},
                                {"ios", report.programs_ios}});
  }
  return json;
}

absl::StatusOr<Footprint> RunFootprint(const Options& options) {
  const Job job = AllJobs().back();
  auto site = JobSite::Create(job);
  if (!site.ok()) return site.status();
  auto ours = OurObserver(options);
  return MeasureFootprint(site->get(), ours.get(), options.footprint_iops, 10);
}

void PrintFootprint(const Footprint& footprint, const Options& options) {
  std::printf(
      "%s at %.0f IO/s: %.2f %% of one core (bar 1 %%: %s), %.1f MiB resident (bar 64: %s)\n",
      options.agent.empty() ? "tracer alone, in this process," : "agent", footprint.iops,
      100 * footprint.core_share, footprint.core_share <= kCoreShareBar ? "met" : "MISSED",
      footprint.resident_bytes / 1048576.0,
      footprint.resident_bytes <= kResidentBar ? "met" : "MISSED");
}

int Main(const Options& options) {
  if (const std::string why = ScratchDisksUnavailable(); !why.empty()) {
    std::fprintf(stderr, "overhead: cannot make scratch disks: %s\n", why.c_str());
    return 1;
  }
  if (!HaveProgram("fio")) {
    std::fprintf(stderr, "overhead: fio is not installed\n");
    return 1;
  }
  if (absl::Status status = EnterPrivateMounts(); !status.ok()) {
    std::fprintf(stderr, "overhead: %s\n", status.ToString().c_str());
    return 1;
  }
  nlohmann::json all = nlohmann::json::array();
  for (const Job& job : AllJobs()) {
    if (!options.jobs.empty() &&
        std::find(options.jobs.begin(), options.jobs.end(), job.name) == options.jobs.end()) {
      continue;
    }
    auto report = RunJob(job, options);
    if (!report.ok()) {
      std::fprintf(stderr, "overhead: %s\n", report.status().ToString().c_str());
      return 1;
    }
    if (options.output == "json") {
      all.push_back(ToJson(*report));
    } else {
      PrintTable(*report);
    }
  }
  if (options.footprint_iops > 0) {
    auto footprint = RunFootprint(options);
    if (!footprint.ok()) {
      std::fprintf(stderr, "overhead: footprint: %s\n", footprint.status().ToString().c_str());
      return 1;
    }
    if (options.output == "json") {
      all.push_back({{"job", "footprint"},
                     {"iops", footprint->iops},
                     {"core_share", footprint->core_share},
                     {"resident_bytes", footprint->resident_bytes}});
    } else {
      PrintFootprint(*footprint, options);
    }
  }
  if (options.output == "json") std::printf("%s\n", all.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  using namespace fleetblame::testing;
  Options options;
  std::vector<std::string> names;
  for (const Job& job : AllJobs()) names.push_back(job.name);
  CLI::App app("CPU time an IO and throughput with the tracer, relative to none.");
  app.add_option("--pairs", options.pairs, "rounds for each job")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "length of a run")->check(CLI::Range(0.5, 60.0));
  app.add_option("--jobs", options.jobs, "which jobs, separated by commas; all without it")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--output", options.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--agent", options.agent,
                 "command line of an agent to run instead of the tracer in this process; {disk} in "
                 "it stands for the disk's name");
  app.add_option("--footprint-iops", options.footprint_iops,
                 "rate at which the observer's own CPU time and memory are measured; 0 = not")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--sample-above", options.sample_above,
                 "as of the agent: IOs a second and CPU above which direct IO and reads are sampled; "
                 "0 = look at each one")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_flag("!--no-rivals", options.rivals, "leave out the tools shown beside ours");
  app.add_flag("!--no-programs", options.programs, "leave out the run that counts BPF programs");
  CLI11_PARSE(app, argc, argv);
  return Main(options);
}
