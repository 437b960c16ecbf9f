// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node-agent/host/clocks.h"
#include "node-agent/host/identity.h"
#include "node-agent/host/lock_file.h"

namespace fleetblame::agent {
namespace {

using testing::HasSubstr;

class HostTest : public testing::Test {
 protected:
  HostTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/host-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    options_.machine_id_path = directory_ + "/machine-id";
    options_.state_directory = directory_ + "/state";
  }
  ~HostTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  HostIdentityOptions options_;
};

TEST_F(HostTest, TheIdIsAHashOfTheMachineId) {
  std::ofstream(options_.machine_id_path) << "0123456789abcdef0123456789abcdef\n";
  const auto id = DeriveHostId(options_);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id->size(), 32u);
  EXPECT_TRUE(CheckHostId(*id).ok());
  // Pinned: a host must not change its identity with an update of the agent.
  EXPECT_EQ(*id, *DeriveHostId(options_));
  EXPECT_EQ(id->find("0123456789abcdef"), std::string::npos);
  std::ofstream(options_.machine_id_path) << "0123456789abcdef0123456789abcdee\n";
  EXPECT_NE(*DeriveHostId(options_), *id);
  EXPECT_FALSE(std::filesystem::exists(options_.state_directory));
}

TEST_F(HostTest, WithoutAMachineIdOneIsMadeAndKept) {
  const auto id = DeriveHostId(options_);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_TRUE(CheckHostId(*id).ok());
  EXPECT_EQ(*DeriveHostId(options_), *id);
  std::ofstream(options_.machine_id_path) << "uninitialized\n";
  EXPECT_EQ(*DeriveHostId(options_), *id);
}

TEST_F(HostTest, WithoutAPlaceToKeepItThereIsAWayOut) {
  options_.state_directory = "/proc/nowhere";
  const auto id = DeriveHostId(options_);
  ASSERT_FALSE(id.ok());
  EXPECT_THAT(std::string(id.status().message()), HasSubstr("--host-id"));
}

TEST_F(HostTest, HostIds) {
  EXPECT_TRUE(CheckHostId("web-1.example_x").ok());
  EXPECT_FALSE(CheckHostId("").ok());
  EXPECT_FALSE(CheckHostId("a b").ok());
  EXPECT_FALSE(CheckHostId("é").ok());
  EXPECT_FALSE(CheckHostId(std::string(65, 'a')).ok());
}

TEST_F(HostTest, ThisHost) {
  EXPECT_EQ(ReadBootId().size(), 36u);
  EXPECT_FALSE(ReadHostname().empty());
  EXPECT_FALSE(ReadKernelRelease().empty());
}

TEST_F(HostTest, ALockIsTakenOnce) {
  const std::string path = directory_ + "/deep/er/agent.lock";
  auto lock = LockFile::Take(path, "this host");
  ASSERT_TRUE(lock.ok()) << lock.status();
  const auto second = LockFile::Take(path, "this host");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("already runs on this host"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(getpid())));
  lock->reset();
  EXPECT_TRUE(LockFile::Take(path, "this host").ok());
}

TEST_F(HostTest, ALockMayLieInTheWorkingDirectory) {
  std::filesystem::create_directories(directory_);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  const auto lock = LockFile::Take("agent.lock", "this host");
  std::filesystem::current_path(before);
  EXPECT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/agent.lock"));
}

TEST_F(HostTest, ALockDiesWithItsProcess) {
  const std::string path = directory_ + "/agent.lock";
  const pid_t child = ::fork();
  if (child == 0) {
    auto lock = LockFile::Take(path, "this host");
    ::_exit(lock.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(LockFile::Take(path, "this host").ok());
}

TEST_F(HostTest, Clocks) {
  const uint64_t boot = BootTimeNs();
  const uint64_t real = RealTimeNs();
  const int64_t error =
      static_cast<int64_t>(real) - static_cast<int64_t>(boot) - RealtimeOffsetNs();
  EXPECT_LT(std::abs(error), 1'000'000'000);
  EXPECT_GE(BootTimeNs(), boot);
}

}  // namespace
}  // namespace fleetblame::agent
