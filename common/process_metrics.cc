// SPDX-License-Identifier: Apache-2.0
#include "common/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/version.h"

namespace fleetblame {
namespace {

prometheus::MetricFamily Family(std::string name, std::string help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {std::move(name), std::move(help), type, {std::move(metric)}};
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<double> ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total_pages = 0;
  uint64_t resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return std::nullopt;
  return double(resident_pages) * double(sysconf(_SC_PAGESIZE));
}

std::optional<double> OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return std::nullopt;
  // The iterator's own descriptor is one of them.
  return double(std::distance(begin(entries), end(entries)) - 1);
}

// Boot time from /proc/stat plus field 22 of /proc/self/stat. Fields are
// counted behind the last ')', because the name in field 2 may hold anything.
std::optional<double> StartTimeSeconds() {
  std::ifstream stat_file("/proc/self/stat");
  std::string stat((std::istreambuf_iterator<char>(stat_file)), {});
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  constexpr size_t kStartTime = 22 - 3;
  double ticks = 0;
  if (fields.size() <= kStartTime || !absl::SimpleAtod(fields[kStartTime], &ticks))
    return std::nullopt;
  std::ifstream system_file("/proc/stat");
  std::string key;
  double boot_seconds = 0;
  while (system_file >> key) {
    if (key == "btime" && system_file >> boot_seconds)
      return boot_seconds + ticks / double(sysconf(_SC_CLK_TCK));
  }
  return std::nullopt;
}

prometheus::MetricFamily BuildInfo() {
  auto family = Family("fleetblame_build_info", "Always 1; the version is a label.",
                       prometheus::MetricType::Gauge, 1);
  family.metric[0].label = {{"version", std::string(kVersion)}};
  return family;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families = {
      BuildInfo(), Family("process_cpu_seconds_total", "User and system CPU time.",
                          MetricType::Counter, CpuSeconds())};
  if (const auto bytes = ResidentBytes())
    families.push_back(
        Family("process_resident_memory_bytes", "Resident memory.", MetricType::Gauge, *bytes));
  if (const auto files = OpenFiles())
    families.push_back(
        Family("process_open_fds", "Open file descriptors.", MetricType::Gauge, *files));
  if (const auto start = StartTimeSeconds())
    families.push_back(Family("process_start_time_seconds", "Start of the process, Unix time.",
                              MetricType::Gauge, *start));
  return families;
}

}  // namespace fleetblame
