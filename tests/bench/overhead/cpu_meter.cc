// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/cpu_meter.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace fleetblame::testing {
namespace {

constexpr unsigned long kKernelThreadFlag = 0x00200000;  // PF_KTHREAD in /proc/PID/stat

uint64_t ClockNs(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) return 0;
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

[[noreturn]] void Spin(int cpu, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "spinner");
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  sched_param parameter{};
  if (getppid() != parent || sched_setaffinity(0, sizeof(cpus), &cpus) != 0 ||
      sched_setscheduler(0, SCHED_IDLE, &parameter) != 0) {
    _exit(1);
  }
  for (;;) {
    __asm__ __volatile__("" ::: "memory");
  }
}

// Idle, iowait and steal of all CPUs together.
uint64_t NotRunningNs() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  uint64_t user, nice, system, idle = 0, iowait = 0, irq, softirq, steal = 0;
  file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return (idle + iowait + steal) * (1000000000u / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
}

bool IsKernelThread(const std::string& directory) {
  std::ifstream file(directory + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t after_comm = text.rfind(')');  // the comm may hold spaces
  if (after_comm == std::string::npos) return false;
  std::istringstream fields(text.substr(after_comm + 1));
  std::string state;
  long skipped;
  unsigned long flags = 0;
  fields >> state;
  for (int i = 0; i < 5; ++i) fields >> skipped;
  fields >> flags;
  return (flags & kKernelThreadFlag) != 0;
}

std::map<pid_t, uint64_t> KernelThreadsNs() {
  std::map<pid_t, uint64_t> result;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || !IsKernelThread(entry.path())) continue;
    std::ifstream comm_file(entry.path() / "comm");
    std::string comm;
    std::getline(comm_file, comm);
    if (comm.rfind("kdamond", 0) == 0) continue;  // monitors memory; no part of any IO
    std::ifstream schedstat(entry.path() / "schedstat");
    uint64_t run_ns = 0;
    if (schedstat >> run_ns) result[pid] = run_ns;
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuMeter>> CpuMeter::Create() {
  std::unique_ptr<CpuMeter> meter(new CpuMeter());
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) {
    return absl::ErrnoToStatus(errno, "ask for the CPUs of this process");
  }
  const pid_t parent = getpid();
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    const pid_t pid = fork();
    if (pid == 0) Spin(cpu, parent);
    if (pid < 0) return absl::ErrnoToStatus(errno, "fork a spinner");
    meter->spinners_.push_back(pid);
  }
  return meter;
}

CpuMeter::~CpuMeter() {
  for (pid_t pid : spinners_) {
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

CpuMeter::Reading CpuMeter::Read() const {
  Reading reading;
  reading.kernel_threads_ns = KernelThreadsNs();
  reading.self_ns = ClockNs(CLOCK_PROCESS_CPUTIME_ID);
  reading.not_running_ns = NotRunningNs();
  for (pid_t pid : spinners_) {
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) == 0) reading.spinners_ns += ClockNs(clock);
  }
  reading.wall_ns = ClockNs(CLOCK_MONOTONIC);
  return reading;
}

void CpuMeter::Start() { start_ = Read(); }

CpuUse CpuMeter::Stop() {
  const Reading now = Read();
  CpuUse use;
  use.wall_ns = now.wall_ns - start_.wall_ns;
  const uint64_t available = use.wall_ns * spinners_.size();
  const uint64_t not_work =
      (now.spinners_ns - start_.spinners_ns) + (now.not_running_ns - start_.not_running_ns);
  use.busy_ns = available > not_work ? available - not_work : 0;
  use.attributed_ns = now.self_ns - start_.self_ns;
  for (const auto& [pid, run_ns] : now.kernel_threads_ns) {
    auto before = start_.kernel_threads_ns.find(pid);
    use.attributed_ns +=
        before == start_.kernel_threads_ns.end() ? run_ns : run_ns - before->second;
  }
  return use;
}

}  // namespace fleetblame::testing
