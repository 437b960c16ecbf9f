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

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
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

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
    // Writeback is done by cgroup only where both controllers are on.
    if (!WriteText(absl::StrCat(kRoot, "/cgroup.subtree_control"), "+io +memory")) {
      GTEST_SKIP() << "no cgroup version 2 with the controllers io and memory at " << kRoot;
    }
    ASSERT_TRUE(mkdir(cgroup_.c_str(), 0755) == 0 || errno == EEXIST);
  }
  void TearDown() override { rmdir(cgroup_.c_str()); }

  const std::string cgroup_ = absl::StrCat(kRoot, "/fb-before");
};

TEST_F(CgroupTest, IsNamedForDataThatWasDirtiedBeforeItWasWatched) {
  auto disk = LoopDisk::Create(DiskBytesFor(FilesystemKind::kExt4));
  ASSERT_TRUE(disk.ok()) << disk.status();
  auto filesystem = ScratchFilesystem::Create(FilesystemKind::kExt4, disk->get());
  ASSERT_TRUE(filesystem.ok()) << filesystem.status();
  const std::string mount_point = (*filesystem)->mount_point();
  // The flusher must not get to it before the tracer is there, which takes minutes when emulated.
  ASSERT_TRUE(WriteText("/proc/sys/vm/dirty_writeback_centisecs", "0"));
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
  uint64_t named = 0, exact = 0, all = 0;
  for (const agent::Row& row : snapshot->rows) {
    if (DirectionOf(row.key.operation) != agent::Operation::kWrite) continue;
    const agent::ActorDefinition& dirtier = actors[row.key.dirtier_actor];
    std::printf("  %s comm '%s' cgroup '%s' bytes %llu\n", ConfidenceName(row.key.confidence),
                dirtier.comm.c_str(), dirtier.cgroup_path.c_str(),
                static_cast<unsigned long long>(row.values.bytes));
    all += row.values.bytes;
    if (row.key.confidence == Confidence::kExact) exact += row.values.bytes;
    if (row.key.confidence != Confidence::kCgroup) continue;
    EXPECT_EQ(dirtier.cgroup_path, "/fb-before");
    EXPECT_EQ(dirtier.comm, "");
    named += row.values.bytes;
  }
  EXPECT_GE(named, kBytes * 99 / 100);
  EXPECT_GE(all, kBytes);
  EXPECT_LE(exact, all / 100);
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
