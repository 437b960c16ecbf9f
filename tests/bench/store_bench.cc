// SPDX-License-Identifier: Apache-2.0
//
// What the store alone costs: rows a second and CPU of durable writes, bytes a row on disk, and the
// time of scans behind `top` over a day of a fleet. Prints one line a figure.
//
//   bazel run //tests/bench:store -- --dir=/var/tmp/fleetblame-bench
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "aggregator/store/rocks_store.h"
#include "common/row_block.h"
#include "tests/bench/synthetic_fleet.h"

namespace fleetblame::bench {
namespace {

using aggregator::HostNumber;
using aggregator::HostRecord;
using aggregator::IncomingBatch;
using aggregator::Level;
using aggregator::RocksStoreOptions;
using aggregator::ScannedBlock;
using aggregator::ScanRange;
using aggregator::Store;

constexpr uint64_t kSecondNs = 1'000'000'000;

struct Settings {
  std::string dir = "/var/tmp/fleetblame-store-bench";
  int hosts = 1000;
  int minutes = 6;
  int group = 64;  // batches in one Append
  int queries = 60;
  int scan_rows = 50;
  bool ingest = true;
  bool scan = true;
  bool keep = false;  // the store that ingest filled
};

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "store_bench: %s\n", what.c_str());
  std::exit(1);
}
void Check(const absl::Status& status) {
  if (!status.ok()) Fail(std::string(status.ToString()));
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double CpuSeconds(int who) {
  rusage usage;
  getrusage(who, &usage);
  auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}
double ThreadCpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

uint64_t DirectoryBytes(const std::string& dir, bool tables_only) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    if (tables_only && entry.path().extension() != ".sst") continue;
    bytes += entry.file_size();
  }
  return bytes;
}

RocksStoreOptions OptionsFor(const Settings& settings, const std::string& name) {
  RocksStoreOptions options;
  options.path = settings.dir + "/" + name;
  options.rollup_settle_ns = {};
  return options;
}

std::unique_ptr<Store> OpenEmpty(const RocksStoreOptions& options) {
  std::filesystem::remove_all(options.path);
  auto store = aggregator::OpenRocksStore(options);
  Check(store.status());
  return *std::move(store);
}

struct Fleet {
  std::vector<SyntheticHost> hosts;
  std::vector<HostNumber> numbers;

  Fleet(const SyntheticFleet* fleet, int count, Store* store) {
    for (int i = 0; i < count; ++i) {
      hosts.emplace_back(fleet, i);
      v1::Hello hello = hosts.back().Hello();
      HostRecord record;
      record.host_id = hello.host_id();
      record.hostname = hello.hostname();
      auto number = store->UpsertHost(record);
      Check(number.status());
      numbers.push_back(*number);
    }
  }
};

// Appends one window of every host, `group` batches at a time; returns rows.
uint64_t AppendWindow(Fleet* fleet, int group, Store* store, double* generating_cpu) {
  uint64_t rows = 0;
  size_t count = fleet->hosts.size();
  for (size_t first = 0; first < count; first += static_cast<size_t>(group)) {
    double cpu = ThreadCpuSeconds();
    size_t n = std::min(static_cast<size_t>(group), count - first);
    std::vector<v1::Batch> batches(n);
    std::vector<IncomingBatch> in(n);
    for (size_t i = 0; i < n; ++i) {
      batches[i] = fleet->hosts[first + i].NextBatch(&in[i].rows);
      in[i].host = fleet->numbers[first + i];
      in[i].batch = &batches[i];
      rows += batches[i].row_count();
    }
    *generating_cpu += ThreadCpuSeconds() - cpu;
    auto results = store->Append(in);
    Check(results.status());
    for (const auto& result : *results) {
      if (result.outcome != aggregator::AppendResult::Outcome::kDurable) {
        Fail(absl::StrCat("a batch was not taken: ", result.error.ToString()));
      }
    }
    cpu = ThreadCpuSeconds();
    batches.clear();
    *generating_cpu += ThreadCpuSeconds() - cpu;
  }
  return rows;
}

void BenchIngest(const Settings& settings) {
  SyntheticFleetOptions fleet_options;
  SyntheticFleet synthetic(fleet_options);
  RocksStoreOptions options = OptionsFor(settings, "ingest");
  std::unique_ptr<Store> store = OpenEmpty(options);
  Fleet fleet(&synthetic, settings.hosts, store.get());

  std::atomic<uint64_t> now_unix_ns{fleet_options.first_window_unix_ns};
  std::atomic<bool> stop{false};
  std::thread upkeep([&] {
    while (!stop) {
      Check(store->Upkeep(now_unix_ns, kSecondNs));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  });
  double generating_cpu = 0;
  double cpu = CpuSeconds(RUSAGE_SELF);
  double start = Seconds();
  uint64_t rows = 0;
  for (int window = 0; window < settings.minutes * 6; ++window) {
    rows += AppendWindow(&fleet, settings.group, store.get(), &generating_cpu);
    now_unix_ns += fleet_options.window_ns;
  }
  double seconds = Seconds() - start;
  double mrows = static_cast<double>(rows) / 1e6;
  double during_cpu = CpuSeconds(RUSAGE_SELF) - cpu - generating_cpu;
  stop = true;
  upkeep.join();
  Check(store->Upkeep(now_unix_ns + 60 * kSecondNs, 600 * kSecondNs));
  double all_cpu = CpuSeconds(RUSAGE_SELF) - cpu - generating_cpu;
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto gauges = store->Gauges();
  std::printf(
      "ingest: %.1f million rows in %.1f s: %.0f rows/s, every Append fsynced (%d batches)\n",
      mrows, seconds, static_cast<double>(rows) / seconds, settings.group);
  std::printf(
      "ingest: %.2f CPU-s per million rows until the last ack, %.2f with all rollups made\n",
      during_cpu / mrows, all_cpu / mrows);
  std::printf(
      "ingest: memory %.0f MiB at most (generator included), rollups made %.0f, raced %.0f\n",
      static_cast<double>(usage.ru_maxrss) / 1024, gauges["rollups_total"],
      gauges["rollups_raced_total"]);
  store.reset();
  std::printf("disk: %.1f bytes a row in tables, %.1f with logs, before compaction\n",
              static_cast<double>(DirectoryBytes(options.path, true)) / static_cast<double>(rows),
              static_cast<double>(DirectoryBytes(options.path, false)) / static_cast<double>(rows));
  double compact_cpu = CpuSeconds(RUSAGE_SELF);
  Check(CompactRocksStore(options));
  std::printf(
      "disk: %.2f bytes a row after compaction, rollups and books included (%.2f CPU-s per million "
      "rows for that)\n",
      static_cast<double>(DirectoryBytes(options.path, true)) / static_cast<double>(rows),
      (CpuSeconds(RUSAGE_SELF) - compact_cpu) / mrows);
  if (!settings.keep) std::filesystem::remove_all(options.path);
}

// A day of a fleet: ten-minute windows, and ten-second ones where a range of 24 h has its edges.
void BuildDay(const Settings& settings, Store* store, std::vector<HostNumber>* numbers,
              uint64_t* end_unix_ns, SyntheticFleetOptions* fleet_options) {
  constexpr uint64_t kDaySeconds = 86400;
  constexpr uint64_t kEdgeSeconds = 1200;
  // The day's second half hour begins the range, so that it has edges at every level.
  const uint64_t first = 1'790'035'200ull * kSecondNs - 1800 * kSecondNs;
  struct Piece {
    uint64_t from_s;
    uint64_t to_s;
    uint64_t window_s;
  };
  fleet_options->rows_per_window = settings.scan_rows;
  fleet_options->keys_per_host = settings.scan_rows * 12 / 10;
  fleet_options->intents = 50;
  fleet_options->actors = 20;
  fleet_options->files = 20;
  fleet_options->window_ns = kSecondNs;
  fleet_options->first_window_unix_ns = first;
  SyntheticFleet synthetic(*fleet_options);
  Fleet fleet(&synthetic, settings.hosts, store);
  *numbers = fleet.numbers;
  double generating_cpu = 0;
  const Piece pieces[] = {{0, kEdgeSeconds, 10},
                          {kEdgeSeconds, kDaySeconds, 600},
                          {kDaySeconds, kDaySeconds + kEdgeSeconds, 10}};
  for (const Piece& piece : pieces) {
    for (uint64_t t = piece.from_s; t < piece.to_s; t += piece.window_s) {
      for (SyntheticHost& host : fleet.hosts)
        host.SetNextWindow(first + t * kSecondNs, piece.window_s * kSecondNs);
      AppendWindow(&fleet, settings.group, store, &generating_cpu);
    }
    Check(store->Upkeep(first + piece.to_s * kSecondNs, 3600 * kSecondNs));
  }
  *end_unix_ns = first + (kDaySeconds + kEdgeSeconds) * kSecondNs;
}

void PrintTimes(const char* what, std::vector<double> times, double rows) {
  std::sort(times.begin(), times.end());
  std::printf("%s: p50 %.0f ms, p99 %.0f ms, %.0f rows read each\n", what,
              times[times.size() / 2] * 1e3, times[times.size() * 99 / 100] * 1e3,
              rows / static_cast<double>(times.size()));
}

void BenchScan(const Settings& settings) {
  RocksStoreOptions options = OptionsFor(settings, "scan");
  std::unique_ptr<Store> store = OpenEmpty(options);
  std::vector<HostNumber> numbers;
  uint64_t end_unix_ns = 0;
  SyntheticFleetOptions fleet_options;
  BuildDay(settings, store.get(), &numbers, &end_unix_ns, &fleet_options);
  std::mt19937_64 random(1);
  auto run = [&](const char* what, auto&& scan) {
    std::vector<double> times;
    double rows = 0;
    for (int q = 0; q < settings.queries; ++q) {
      uint64_t end = end_unix_ns - random() % 600 * kSecondNs;
      ScanRange range{end - 86400 * kSecondNs, end, Level::k1d, false};
      double start = Seconds();
      // As `top` does: sum bytes by intent.
      absl::flat_hash_map<uint32_t, uint64_t> bytes;
      auto view = store->NewReadView();
      Check(scan(*view, range, [&](const ScannedBlock& block) {
        RowBlockReader reader(*block.rows);
        BlockRow row;
        while (reader.Next(&row, false)) {
          bytes[row.dirtier_intent] += row.bytes;
          ++rows;
        }
        return true;
      }));
      times.push_back(Seconds() - start);
    }
    PrintTimes(what, times, rows);
  };
  std::printf("scan: 24 h of %d hosts with %d rows a window\n", settings.hosts, settings.scan_rows);
  run("scan of all hosts", [&](const auto& view, const auto& range, const auto& sink) {
    return view.ScanHosts(numbers, range, sink);
  });
  run("scan of the fleet", [&](const auto& view, const auto& range, const auto& sink) {
    return view.ScanFleet(range, sink);
  });
  run("scan of one intent", [&](const auto& view, const auto& range, const auto& sink) {
    std::vector<uint32_t> intent = {static_cast<uint32_t>(1 + random() % 50)};
    return view.ScanIntents(intent, range, sink);
  });
  run("losses of all hosts", [&](const auto& view, const auto& range, const auto&) {
    return view.Losses(numbers, range).status();
  });
  run("coverage of all hosts", [&](const auto& view, const auto& range, const auto&) {
    return view.Coverage(numbers, range).status();
  });
  store.reset();
  std::filesystem::remove_all(options.path);
}

bool TakeFlag(const char* argument, const char* name, std::string* value) {
  size_t n = std::strlen(name);
  if (std::strncmp(argument, name, n) != 0 || argument[n] != '=') return false;
  *value = argument + n + 1;
  return true;
}

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    std::string value;
    if (TakeFlag(argv[i], "--dir", &value)) {
      settings.dir = value;
    } else if (TakeFlag(argv[i], "--hosts", &value)) {
      settings.hosts = std::atoi(value.c_str());
    } else if (TakeFlag(argv[i], "--minutes", &value)) {
      settings.minutes = std::atoi(value.c_str());
    } else if (TakeFlag(argv[i], "--group", &value)) {
      settings.group = std::atoi(value.c_str());
    } else if (TakeFlag(argv[i], "--queries", &value)) {
      settings.queries = std::atoi(value.c_str());
    } else if (TakeFlag(argv[i], "--only", &value)) {
      settings.ingest = value == "ingest";
      settings.scan = value == "scan";
    } else if (std::strcmp(argv[i], "--keep") == 0) {
      settings.keep = true;
    } else {
      Fail(absl::StrCat(
          "unknown argument ", argv[i],
          "; known: --dir= --hosts= --minutes= --group= --queries= --only=ingest|scan --keep"));
    }
  }
  if (settings.hosts < 1 || settings.minutes < 1 || settings.group < 1 || settings.queries < 1) {
    Fail("numbers must be positive");
  }
  if (settings.ingest) BenchIngest(settings);
  if (settings.scan) BenchScan(settings);
  return 0;
}

}  // namespace
}  // namespace fleetblame::bench

int main(int argc, char** argv) { return fleetblame::bench::Main(argc, argv); }
