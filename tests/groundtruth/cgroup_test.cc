// SPDX-License-Identifier: Apache-2.0
//
// Data that was dirtied before anybody watched: all that is known of it when it is written is the
// cgroup for which writeback does so. It must be named, with the confidence that says so, and
// nothing else may be: not the flusher, and nobody as exact.
//
// Needs cgroup version 2 with the io and memory controllers; skipped elsewhere.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/groundtruth/figures.h"
#include "tests/groundtruth/judge.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::DeviceNumber;

constexpr char kRoot[] = "/sys/fs/cgroup";
constexpr uint64_t kBytes = 8 << 20;
std::string writer_program;

bool WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return static_cast<bool>(file);
}

class CgroupTest : public ::testing::TestWithParam<FilesystemKind> {
 protected:
  void SetUp() override {
    if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
    // Writeback is done by cgroup only where both controllers are on.
    if (!WriteText(absl::StrCat(kRoot, "/cgroup.subtree_control"), "+io +memory")) {
      GTEST_SKIP() << "no cgroup version 2 with the controllers io and memory at " << kRoot;
    }
    if (!HaveProgram(MkfsProgram(GetParam()))) GTEST_SKIP() << MkfsProgram(GetParam());
    ASSERT_TRUE(mkdir(cgroup_.c_str(), 0755) == 0 || errno == EEXIST);
  }
  void TearDown() override { rmdir(cgroup_.c_str()); }

  const std::string cgroup_ = absl::StrCat(kRoot, "/fb-before");
};

TEST_P(CgroupTest, IsNamedForDataThatWasDirtiedBeforeItWasWatched) {
  auto disk = LoopDisk::Create(DiskBytesFor(GetParam()));
  ASSERT_TRUE(disk.ok()) << disk.status();
  auto filesystem = ScratchFilesystem::Create(GetParam(), disk->get());
  ASSERT_TRUE(filesystem.ok()) << filesystem.status();
  const std::string mount_point = (*filesystem)->mount_point();
  // The flusher must not get to it before the tracer is there, which takes minutes when emulated:
  // no periodic writeback, and no small threshold because the disk has been idle so far.
  ASSERT_TRUE(WriteText("/proc/sys/vm/dirty_writeback_centisecs", "0"));
  WriteText(absl::StrCat("/sys/block/", (*disk)->name(), "/bdi/min_ratio"), "90");
  auto wrote = RunCommand({"sh", "-c",
                           absl::StrCat("echo $$ > ", cgroup_, "/cgroup.procs && exec ",
                                        writer_program, " --comm fbw-before --mode write --path ",
                                        mount_point, "/f --bytes ", kBytes, " --block 65536")});
  ASSERT_TRUE(wrote.ok()) << wrote.status();
  auto tracer = agent::CreateBpfTracer(agent::BpfTracerOptions());
  ASSERT_TRUE(tracer.ok()) << tracer.status();
  ASSERT_EQ((*tracer)->SetDevices({{(*disk)->name()}}), absl::OkStatus());
  ASSERT_TRUE((*tracer)->Collect().ok());
  ASSERT_TRUE(RunCommand({writer_program, "--comm", "fbw-syncer", "--mode", "syncfs", "--path",
                          mount_point})
                  .ok());
  ASSERT_EQ((*disk)->WaitForRest(absl::Milliseconds(200)), absl::OkStatus());
  auto snapshot = (*tracer)->Collect();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_TRUE(WriteText("/proc/sys/vm/dirty_writeback_centisecs", "500"));

  std::map<agent::ActorId, agent::ActorDefinition> actors;
  for (const auto& actor : snapshot->actors) actors[actor.id] = actor;
  Figures figures;
  for (const agent::Row& row : snapshot->rows) {
    if (DirectionOf(row.key.operation) != agent::Operation::kWrite) continue;
    const agent::ActorDefinition& dirtier = actors[row.key.dirtier_actor];
    std::printf("  %s comm '%s' cgroup '%s' bytes %llu\n", ConfidenceName(row.key.confidence),
                dirtier.comm.c_str(), dirtier.cgroup_path.c_str(),
                static_cast<unsigned long long>(row.values.bytes));
    figures.all += row.values.bytes;
    figures.by_confidence[row.key.confidence] += row.values.bytes;
    if (row.key.confidence != Confidence::kCgroup) continue;
    EXPECT_EQ(dirtier.cgroup_path, "/fb-before");
    EXPECT_EQ(dirtier.comm, "");
    figures.all_right += row.values.bytes;
  }
  // A kernel may have written some of it nevertheless: that is not judged.
  figures.data = std::min(figures.all, kBytes);
  figures.data_right = std::min(figures.all_right, figures.data);
  for (const agent::Books& books : snapshot->books) {
    if (books.direction == agent::Operation::kWrite) figures.lost += books.lost_bytes;
  }
  TellFigures(absl::StrCat(FilesystemName(GetParam()), "/dirtied_before"), figures);
  EXPECT_GE(figures.all, kBytes / 2);
  EXPECT_GE(figures.data_right, figures.data * 99 / 100);
  EXPECT_LE(figures.by_confidence[Confidence::kExact], figures.all / 100);
}

// btrfs is not among them: its own thread writes everything every half a minute.
INSTANTIATE_TEST_SUITE_P(All, CgroupTest,
                         ::testing::Values(FilesystemKind::kExt4, FilesystemKind::kXfs),
                         [](const auto& info) {
                           return absl::StrCat(FilesystemName(info.param), "_dirtied_before");
                         });

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
