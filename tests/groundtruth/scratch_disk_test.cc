// SPDX-License-Identifier: Apache-2.0
//
// What is measured between two moments of rest is all that the workload did: nothing else moves a
// scratch disk.
#include "tests/groundtruth/scratch_disk.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

// Longer than ext4 waits before it reads ahead, and than the kernel's threads wait before they
// write back.
constexpr absl::Duration kLongEnough = absl::Seconds(7);

struct Scratch {
  FilesystemKind kind;
  std::unique_ptr<LoopDisk> disk;
  std::unique_ptr<ScratchFilesystem> filesystem;
  DiskCounters at_rest;
};

TEST(ScratchDiskTest, MountedFilesystemsStayAtRest) {
  if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
  ASSERT_TRUE(EnterPrivateMounts().ok());
  std::vector<Scratch> all;
  for (FilesystemKind kind :
       {FilesystemKind::kExt4, FilesystemKind::kExt4NoJournal, FilesystemKind::kExt4DataJournal,
        FilesystemKind::kExt4FastCommit, FilesystemKind::kXfs, FilesystemKind::kBtrfs}) {
    SCOPED_TRACE(FilesystemName(kind));
    ASSERT_TRUE(HaveProgram(MkfsProgram(kind)));
    if (!KernelHas(kind)) {
      std::printf("%s: this kernel has it not\n", FilesystemName(kind));
      continue;
    }
    auto disk = LoopDisk::Create(DiskBytesFor(kind));
    ASSERT_TRUE(disk.ok()) << disk.status();
    auto filesystem = ScratchFilesystem::Create(kind, disk->get());
    ASSERT_TRUE(filesystem.ok()) << filesystem.status();
    const absl::Status rest = (*filesystem)->Remount();
    ASSERT_TRUE(rest.ok()) << rest;
    auto at_rest = (*disk)->Counters();
    ASSERT_TRUE(at_rest.ok()) << at_rest.status();
    all.push_back({kind, *std::move(disk), *std::move(filesystem), *at_rest});
  }
  ASSERT_FALSE(all.empty());
  absl::SleepFor(kLongEnough);
  for (const Scratch& scratch : all) {
    SCOPED_TRACE(FilesystemName(scratch.kind));
    auto now = scratch.disk->Counters();
    ASSERT_TRUE(now.ok()) << now.status();
    EXPECT_EQ(now->read_bytes, scratch.at_rest.read_bytes);
    EXPECT_EQ(now->write_bytes, scratch.at_rest.write_bytes);
    EXPECT_EQ(now->discard_bytes, scratch.at_rest.discard_bytes);
    EXPECT_EQ(now->in_flight, 0u);
  }
}

}  // namespace
}  // namespace fleetblame::testing
