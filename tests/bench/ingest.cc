// SPDX-License-Identifier: Apache-2.0
//
// How many rows one aggregator makes durable: the real program with its real store on a scratch
// directory, fed over loopback by agents that live in this process. Acknowledgements come after
// fsync, as always.
//
//   bazel run //tests/bench:ingest -- --hosts 200 --seconds 20
//
// With --pace 10 each host sends one batch every ten seconds, as real ones do; use it with many
// hosts to see what connections cost.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/bench/load_agent.h"
#include "tests/bench/synthetic_fleet.h"
#include "tests/testing/child_process.h"
#include "tests/testing/free_port.h"
#include "tests/testing/process_usage.h"

namespace fleetblame::bench {
namespace {

using testing::ChildProcess;

constexpr double kBarRowsPerSecond = 600'000;
constexpr double kBarCpuPerMillion = 1.5;
// It settles streams and closes its store.
constexpr absl::Duration kStopPatience = absl::Seconds(60);

struct Options {
  std::string aggregator;
  std::string scratch;
  int hosts = 200;
  int rows = 500;
  int under_way = 4;
  double pace_seconds = 0;
  int warmup_seconds = 4;
  int seconds = 20;
  std::string memory_limit = "1GiB";
  bool plain = false;
  bool keep = false;
  bool judge = false;
};

Options ParseOptions(int argc, char** argv, int* exit_code) {
  Options o;
  CLI::App app("Measures what one aggregator takes in.");
  app.add_option("--aggregator", o.aggregator, "the program to measure")->required();
  app.add_option("--scratch", o.scratch, "directory for its store [a new one under /var/tmp]");
  app.add_option("--hosts", o.hosts)->capture_default_str();
  app.add_option("--rows", o.rows, "rows in a batch")->capture_default_str();
  app.add_option("--under-way", o.under_way, "batches of a host without Ack")
      ->capture_default_str();
  app.add_option("--pace", o.pace_seconds,
                 "seconds between batches of a host; 0 = all it can take");
  app.add_option("--warmup", o.warmup_seconds)->capture_default_str();
  app.add_option("--seconds", o.seconds)->capture_default_str();
  app.add_option("--memory-limit", o.memory_limit)->capture_default_str();
  app.add_flag("--plain", o.plain, "rows not compressed");
  app.add_flag("--keep", o.keep, "leave the store behind");
  app.add_flag("--judge", o.judge, "exit 1 when a bar is missed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error);
  }
  return o;
}

void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

double OwnCpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint64_t DirectoryBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, error)) {
    if (entry.is_regular_file(error)) bytes += entry.file_size(error);
  }
  return bytes;
}

// What was measured at one moment.
struct Sample {
  absl::Time at;
  uint64_t rows, batches, batch_bytes, rows_sent, latency_us;
  double own_cpu;
  testing::ProcessUsage usage;
};

Sample Take(const ChildProcess& child, LoadCounters& counters) {
  Sample sample;
  auto usage = testing::UsageOf(child.pid());
  if (usage.ok()) sample.usage = *usage;
  sample.at = absl::Now();
  sample.rows = counters.rows_acked;
  sample.batches = counters.batches_acked;
  sample.batch_bytes = counters.batch_bytes_sent;
  sample.rows_sent = counters.rows_sent;
  sample.latency_us = counters.ack_latency_us_sum;
  sample.own_cpu = OwnCpuSeconds();
  return sample;
}

class Fleet {
 public:
  Fleet(const Options& options, const SyntheticFleet* synthetic, const std::string& address,
        LoadCounters* counters)
      : options_(options) {
    for (int i = 0; i < options.hosts; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection each, as real agents
      agents_.push_back(std::make_unique<LoadAgent>(
          synthetic, i, options.pace_seconds > 0 ? 0 : options.under_way,
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments),
          counters));
    }
  }
  ~Fleet() {
    for (auto& agent : agents_) agent->Stop();
    for (auto& agent : agents_) agent->AwaitDone();
  }

  void Start() {
    for (size_t i = 0; i < agents_.size(); ++i) {
      agents_[i]->Start();
      if (i % 100 == 99) absl::SleepFor(absl::Milliseconds(10));
    }
  }

  void RunUntil(absl::Time end) {
    if (options_.pace_seconds <= 0) return absl::SleepFor(end - absl::Now());
    absl::Duration step = absl::Seconds(options_.pace_seconds) / agents_.size();
    while (absl::Now() < end) {
      if (next_due_ == absl::InfinitePast()) next_due_ = absl::Now();
      absl::SleepFor(next_due_ - absl::Now());
      agents_[next_++ % agents_.size()]->Tick();
      next_due_ += step;
    }
  }

 private:
  const Options& options_;
  std::vector<std::unique_ptr<LoadAgent>> agents_;
  size_t next_ = 0;
  absl::Time next_due_ = absl::InfinitePast();
};

bool AwaitListening(int port, const ChildProcess& child) {
  auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  for (int i = 0; i < 100 && !child.HasEnded(); ++i) {
    auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(100);
    if (channel->WaitForConnected(deadline)) return true;
  }
  return false;
}

bool Report(const Options& o, const Sample& begin, const Sample& end, const LoadCounters& counters,
            uint64_t disk_bytes) {
  double seconds = absl::ToDoubleSeconds(end.at - begin.at);
  double rows = static_cast<double>(end.rows - begin.rows);
  double batches = static_cast<double>(end.batches - begin.batches);
  double cpu = end.usage.cpu_seconds - begin.usage.cpu_seconds;
  double per_million = rows == 0 ? 0 : cpu / rows * 1e6;
  std::printf("hosts %d, rows a batch %d, %s, %.1f s\n", o.hosts, o.rows,
              o.plain ? "plain" : "zstd", seconds);
  std::printf("  durable rows/s             %12.0f   (bar %.0f)\n", rows / seconds,
              kBarRowsPerSecond);
  std::printf("  aggregator CPU-s/M rows    %12.3f   (bar %.1f)\n", per_million, kBarCpuPerMillion);
  std::printf("  aggregator CPUs            %12.2f\n", cpu / seconds);
  std::printf("  generator CPUs             %12.2f\n", (end.own_cpu - begin.own_cpu) / seconds);
  std::printf("  resident MiB now / peak    %12.0f / %.0f\n", end.usage.resident_bytes / 1048576.0,
              end.usage.peak_resident_bytes / 1048576.0);
  std::printf("  threads                    %12d\n", end.usage.threads);
  std::printf("  batches/s                  %12.0f\n", batches / seconds);
  std::printf("  wire bytes/row             %12.1f   (bar 24)\n",
              static_cast<double>(end.batch_bytes - begin.batch_bytes) /
                  static_cast<double>(end.rows_sent - begin.rows_sent));
  std::printf(
      "  ack latency ms mean / max  %12.1f / %.1f\n",
      batches == 0 ? 0 : static_cast<double>(end.latency_us - begin.latency_us) / batches / 1e3,
      static_cast<double>(counters.ack_latency_us_max) / 1e3);
  std::printf("  disk bytes/row so far      %12.1f\n",
              static_cast<double>(disk_bytes) / static_cast<double>(end.rows));
  std::printf("  rejects %llu, needs %llu, streams that ended %llu\n",
              static_cast<unsigned long long>(counters.rejects),
              static_cast<unsigned long long>(counters.needs),
              static_cast<unsigned long long>(counters.streams_ended));
  bool sound = counters.rejects == 0 && counters.needs == 0 && counters.streams_ended == 0;
  if (!sound) std::printf("  NOT SOUND: something was refused\n");
  return sound && (o.pace_seconds > 0 ||
                   (rows / seconds >= kBarRowsPerSecond && per_million <= kBarCpuPerMillion));
}

int Main(int argc, char** argv) {
  int exit_code = -1;
  Options options = ParseOptions(argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  RaiseFileLimit();
  if (options.scratch.empty()) {
    options.scratch = absl::StrCat("/var/tmp/fleetblame-bench-ingest-", getpid());
  }
  std::filesystem::create_directories(options.scratch);

  SyntheticFleetOptions fleet_options;
  fleet_options.rows_per_window = options.rows;
  fleet_options.keys_per_host = options.rows * 8 / 5;
  fleet_options.zstd = !options.plain;
  // An hour back, so that windows which run faster than the clock stay in the past.
  fleet_options.first_window_unix_ns =
      static_cast<uint64_t>(absl::ToUnixSeconds(absl::Now() - absl::Hours(6))) / 60 * 60 *
      1'000'000'000;
  SyntheticFleet synthetic(fleet_options);

  int port = testing::FreePort();
  std::string log = absl::StrCat(options.scratch, "/aggregator.log");
  auto child =
      ChildProcess::Start({options.aggregator, "--listen", absl::StrCat("127.0.0.1:", port),
                           "--data-dir", absl::StrCat(options.scratch, "/store"),
                           "--metrics-address", "", "--memory-limit", options.memory_limit},
                          ChildProcess::Output::kAppend, log);
  if (!child.ok() || !AwaitListening(port, **child)) {
    std::fprintf(stderr, "the aggregator did not start; see %s\n", log.c_str());
    return 1;
  }

  LoadCounters counters;
  bool good = false;
  {
    Fleet fleet(options, &synthetic, absl::StrCat("127.0.0.1:", port), &counters);
    absl::Time started = absl::Now();
    fleet.Start();
    absl::Time patience = absl::Now() + absl::Seconds(300);
    while (counters.registered < static_cast<uint64_t>(options.hosts) && absl::Now() < patience) {
      absl::SleepFor(absl::Milliseconds(50));
    }
    // All of them are new: each is a durable write before its first batch may come.
    Sample registered = Take(**child, counters);
    std::printf("registered %llu hosts in %.1f s; aggregator %.1f, generator %.1f CPU-s\n",
                static_cast<unsigned long long>(counters.registered),
                absl::ToDoubleSeconds(registered.at - started), registered.usage.cpu_seconds,
                registered.own_cpu);
    fleet.RunUntil(absl::Now() + absl::Seconds(options.warmup_seconds));
    Sample begin = Take(**child, counters);
    counters.ack_latency_us_max = 0;
    fleet.RunUntil(absl::Now() + absl::Seconds(options.seconds));
    Sample end = Take(**child, counters);
    good = Report(options, begin, end, counters,
                  DirectoryBytes(absl::StrCat(options.scratch, "/store")));
  }
  auto ended = (*child)->Stop(SIGTERM, kStopPatience);
  int code = ended.ok() && WIFEXITED(ended->exit_status) ? WEXITSTATUS(ended->exit_status) : 1;
  if (code != 0) std::printf("the aggregator did not end well; see %s\n", log.c_str());
  if (!options.keep && code == 0) std::filesystem::remove_all(options.scratch);
  return code != 0 || (options.judge && !good) ? 1 : 0;
}

}  // namespace
}  // namespace fleetblame::bench

int main(int argc, char** argv) { return fleetblame::bench::Main(argc, argv); }
