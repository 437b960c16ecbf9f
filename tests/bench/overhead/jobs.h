// SPDX-License-Identifier: Apache-2.0
//
// The IO that the cost benchmark runs, by fio:
//   four direct jobs on a bare loop disk, the classic ssd-test: 4 KiB, libaio, four processes,
//   depth 4 two buffered jobs on ext4 on a loop disk: 4 KiB writes of two processes, random and
//   sequential, with an fsync every so many writes. Without it the pages would stay dirty after the
//   first round, and dirtying a dirty page costs a tracer nothing.
//
// Not thread-safe.
#ifndef TESTS_BENCH_OVERHEAD_JOBS_H_
#define TESTS_BENCH_OVERHEAD_JOBS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {

struct Job {
  std::string name;
  std::string pattern;  // fio's --rw
  bool direct = true;
};

const std::vector<Job>& AllJobs();

struct JobResult {
  uint64_t ios = 0;     // reads or writes that fio did
  double seconds = 0;   // of fio's own run time
  uint64_t cpu_ns = 0;  // of fio's processes
};

// The disk that a job runs on.
class JobSite {
 public:
  // Makes disk, filesystem and files, and writes all data once.
  static absl::StatusOr<std::unique_ptr<JobSite>> Create(const Job& job);

  const std::string& disk() const { return disk_->name(); }

  // One run of about `seconds`, as fast as it goes or at `iops` IOs a second (0 = no limit).
  absl::StatusOr<JobResult> Run(double seconds, int iops = 0);

  // Lets what the last run left behind come to an end.
  absl::Status Settle();

 private:
  explicit JobSite(Job job) : job_(std::move(job)) {}
  std::vector<std::string> Command(double seconds, int iops) const;
  absl::Status WriteAllData();

  Job job_;
  std::unique_ptr<LoopDisk> disk_;
  std::unique_ptr<ScratchFilesystem> filesystem_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_BENCH_OVERHEAD_JOBS_H_
