// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/footprint.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fleetblame::testing {
namespace {

uint64_t CpuNs(pid_t pid) {
  clockid_t clock;
  timespec t{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  uint64_t total = 0;
  uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

absl::StatusOr<Footprint> MeasureFootprint(JobSite* site, Observer* observer, int iops,
                                           double seconds) {
  absl::Status status = observer->Start(site->disk());
  if (!status.ok()) return status;
  absl::SleepFor(absl::Seconds(1));  // what it does once, at the start, is over
  const pid_t pid = observer->pid();
  const uint64_t cpu_before = CpuNs(pid);
  const absl::Time begin = absl::Now();
  auto result = site->Run(seconds, iops);
  const double wall = absl::ToDoubleSeconds(absl::Now() - begin);
  Footprint footprint;
  footprint.core_share = static_cast<double>(CpuNs(pid) - cpu_before) / 1e9 / wall;
  footprint.resident_bytes = ResidentBytes(pid);
  auto observation = observer->Stop();
  if (!result.ok()) return result.status();
  if (!observation.ok()) return observation.status();
  footprint.iops = static_cast<double>(result->ios) / result->seconds;
  return footprint;
}

}  // namespace fleetblame::testing
