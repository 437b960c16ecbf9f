// SPDX-License-Identifier: Apache-2.0
//
// Nothing is left behind, even when a process with a scratch filesystem and a changed setting is
// killed where it stands.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/sysctl_guard.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

constexpr char kSetting[] = "/proc/sys/kernel/printk_ratelimit_burst";

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

bool Attached(const std::string& loop) {
  return std::filesystem::exists(absl::StrCat("/sys/block/", loop, "/loop/backing_file"));
}

bool EventuallyTrue(const std::function<bool()>& condition) {
  for (int i = 0; i < 200; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(25));
  }
  return false;
}

// Says through `fd` which disk it made, and hangs.
[[noreturn]] void HoldFilesystem(int fd) {
  if (!EnterPrivateMounts().ok()) _exit(1);
  auto disk = LoopDisk::Create(DiskBytesFor(FilesystemKind::kExt4));
  if (!disk.ok()) _exit(1);
  auto filesystem = ScratchFilesystem::Create(FilesystemKind::kExt4, disk->get());
  if (!filesystem.ok()) _exit(1);
  std::ofstream(absl::StrCat((*filesystem)->mount_point(), "/file")) << "data";
  auto setting = SysctlGuard::Set(kSetting, "77");
  if (!setting.ok()) _exit(1);
  const std::string name = (*disk)->name() + "\n";
  if (write(fd, name.data(), name.size()) < 0) _exit(1);
  for (;;) pause();
}

TEST(CleanupTest, KilledProcessLeavesNothing) {
  if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
  if (!HaveProgram("mkfs.ext4")) GTEST_SKIP() << "mkfs.ext4 is not installed";
  const std::string before = ReadText(kSetting);
  ASSERT_NE(before, "77");
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t pid = fork();
  if (pid == 0) HoldFilesystem(fds[1]);
  close(fds[1]);
  char buffer[64];
  const ssize_t got = read(fds[0], buffer, sizeof(buffer));
  close(fds[0]);
  ASSERT_GT(got, 0) << "the process that was to be killed did not get that far";
  const std::string loop(absl::StripAsciiWhitespace(absl::string_view(buffer, got)));
  EXPECT_TRUE(Attached(loop));
  EXPECT_EQ(ReadText(kSetting), "77");

  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(EventuallyTrue([&] { return !Attached(loop); })) << loop << " is still attached";
  EXPECT_TRUE(EventuallyTrue([&] { return ReadText(kSetting) == before; }));
}

TEST(CleanupTest, GuardRestoresInScope) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string before = ReadText(kSetting);
  {
    auto setting = SysctlGuard::Set(kSetting, "78");
    ASSERT_TRUE(setting.ok()) << setting.status();
    EXPECT_EQ(ReadText(kSetting), "78");
  }
  EXPECT_EQ(ReadText(kSetting), before);
}

// Two runs at once: the second must not take the first one's value for the old one.
TEST(CleanupTest, SecondGuardWaitsForTheOldValue) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string before = ReadText(kSetting);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t first = fork();
  if (first == 0) {
    auto setting = SysctlGuard::Set(kSetting, "77");
    if (!setting.ok() || write(fds[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(fds[1]);
  char byte;
  ASSERT_EQ(read(fds[0], &byte, 1), 1);
  close(fds[0]);
  const pid_t second = fork();
  if (second == 0) {
    auto setting = SysctlGuard::Set(kSetting, "78");
    const bool good = setting.ok() && ReadText(kSetting) == "78";
    setting->reset();
    _exit(good ? 0 : 1);
  }
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(ReadText(kSetting), "77") << "the second guard did not wait";
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
  int status = -1;
  waitpid(second, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadText(kSetting), before);
}

TEST(CleanupTest, UnknownSettingIsAnError) {
  EXPECT_FALSE(SysctlGuard::Set("/proc/sys/no/such/setting", "1").ok());
}

}  // namespace
}  // namespace fleetblame::testing
