// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/jobs.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kDirectProcesses = 4;
constexpr int kBufferedProcesses = 2;
constexpr uint64_t kBytesPerProcess = 128 * kMiB;
// Every 16 MiB: an eighth of a file, so that almost every write finds a clean page.
constexpr int kWritesPerFsync = 4096;

absl::StatusOr<JobResult> ParseFio(const std::string& text) {
  const auto json = nlohmann::json::parse(text.substr(text.find('{')), nullptr, false);
  if (json.is_discarded() || !json.contains("jobs") || json["jobs"].empty()) {
    return absl::InternalError("fio printed no JSON result");
  }
  JobResult result;
  for (const auto& job : json["jobs"]) {
    if (job.value("error", 0) != 0) return absl::InternalError("fio reports an IO error");
    for (const char* direction : {"read", "write"}) {
      result.ios += job[direction].value("total_ios", uint64_t{0});
      result.seconds = std::max(result.seconds, job[direction].value("runtime", 0.0) / 1000);
    }
  }
  if (result.ios == 0) return absl::InternalError("fio did no IO");
  return result;
}

}  // namespace

const std::vector<Job>& AllJobs() {
  static const auto* jobs = new std::vector<Job>{
      {"seqread-direct", "read", true},      {"randread-direct", "randread", true},
      {"seqwrite-direct", "write", true},    {"randwrite-direct", "randwrite", true},
      {"seqwrite-buffered", "write", false}, {"randwrite-buffered", "randwrite", false},
  };
  return *jobs;
}

absl::StatusOr<std::unique_ptr<JobSite>> JobSite::Create(const Job& job) {
  std::unique_ptr<JobSite> site(new JobSite(job));
  const uint64_t data = kBytesPerProcess * (job.direct ? kDirectProcesses : kBufferedProcesses);
  auto disk = LoopDisk::Create(job.direct ? data : 2 * data);
  if (!disk.ok()) return disk.status();
  site->disk_ = *std::move(disk);
  if (!job.direct) {
    auto filesystem = ScratchFilesystem::Create(FilesystemKind::kExt4, site->disk_.get());
    if (!filesystem.ok()) return filesystem.status();
    site->filesystem_ = *std::move(filesystem);
  }
  absl::Status status = site->WriteAllData();
  if (status.ok() && !job.direct) status = site->filesystem_->Remount();
  if (!status.ok()) return status;
  return site;
}

std::vector<std::string> JobSite::Command(double seconds, int iops) const {
  const int processes = job_.direct ? kDirectProcesses : kBufferedProcesses;
  std::vector<std::string> command = {"fio",
                                      absl::StrCat("--name=", job_.name),
                                      absl::StrCat("--rw=", job_.pattern),
                                      "--bs=4k",
                                      "--group_reporting=1",
                                      "--output-format=json",
                                      "--time_based=1",
                                      absl::StrFormat("--runtime=%dms", int(seconds * 1000)),
                                      "--randrepeat=1",
                                      "--norandommap=1",
                                      "--refill_buffers=0",
                                      absl::StrCat("--size=", kBytesPerProcess)};
  if (job_.direct) {
    command.insert(command.end(),
                   {absl::StrCat("--filename=", disk_->path()), "--direct=1", "--ioengine=libaio",
                    "--iodepth=4", absl::StrCat("--numjobs=", processes),
                    absl::StrCat("--offset_increment=", kBytesPerProcess)});
  } else {
    command.insert(command.end(),
                   {absl::StrCat("--directory=", filesystem_->mount_point()), "--direct=0",
                    "--ioengine=psync", absl::StrCat("--numjobs=", processes),
                    absl::StrCat("--fsync=", kWritesPerFsync), "--overwrite=1"});
  }
  if (iops > 0) command.push_back(absl::StrCat("--rate_iops=", iops / processes));
  return command;
}

absl::Status JobSite::WriteAllData() {
  std::vector<std::string> command = Command(0, 0);
  for (std::string& word : command) {
    if (word.rfind("--rw=", 0) == 0) word = "--rw=write";
    if (word.rfind("--bs=", 0) == 0) word = "--bs=1m";
    if (word.rfind("--time_based", 0) == 0) word = "--time_based=0";
    if (word.rfind("--runtime", 0) == 0) word = "--end_fsync=1";
  }
  return RunCommand(command).status();
}

absl::StatusOr<JobResult> JobSite::Run(double seconds, int iops) {
  auto child = ChildProcess::Start(Command(seconds, iops), ChildProcess::Output::kCapture);
  if (!child.ok()) return child.status();
  auto ended = (*child)->Wait();
  if (!ended.ok()) return ended.status();
  if (ended->exit_status != 0) {
    return absl::InternalError(absl::StrCat("fio failed: ", ended->output));
  }
  auto result = ParseFio(ended->output);
  if (result.ok()) result->cpu_ns = ended->cpu_ns;
  return result;
}

absl::Status JobSite::Settle() { return disk_->WaitForRest(absl::Milliseconds(60)); }

}  // namespace fleetblame::testing
