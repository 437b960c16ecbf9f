// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fleetblame::testing {
namespace {

TEST(ChildProcessTest, OutputIsCaptured) {
  auto output = RunCommand({"echo", "hello"});
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, "hello\n");
}

TEST(ChildProcessTest, FailureNamesTheProgramAndItsStatus) {
  auto output = RunCommand({"sh", "-c", "exit 3"});
  ASSERT_FALSE(output.ok());
  EXPECT_NE(output.status().message().find("sh -c exit 3"), std::string::npos);
  EXPECT_NE(output.status().message().find("status 3"), std::string::npos);
}

TEST(ChildProcessTest, MissingProgramIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(RunCommand({"no-such-program-anywhere"}).status()));
  EXPECT_FALSE(HaveProgram("no-such-program-anywhere"));
  EXPECT_TRUE(HaveProgram("sh"));
}

TEST(ChildProcessTest, StopEndsAProcessThatListens) {
  auto child = ChildProcess::Start({"sleep", "1000"}, ChildProcess::Output::kDiscard);
  ASSERT_TRUE(child.ok()) << child.status();
  auto ended = (*child)->Stop(SIGTERM);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_TRUE(WIFSIGNALED(ended->exit_status));
  EXPECT_EQ(WTERMSIG(ended->exit_status), SIGTERM);
}

TEST(ChildProcessTest, StopKillsOneThatDoesNotListen) {
  auto child =
      ChildProcess::Start({"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"},
                          ChildProcess::Output::kCapture);
  ASSERT_TRUE(child.ok()) << child.status();
  absl::SleepFor(absl::Milliseconds(300));  // until it has set its trap
  EXPECT_FALSE((*child)->HasEnded());
  auto ended = (*child)->Stop(SIGTERM, absl::Milliseconds(50));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(WTERMSIG(ended->exit_status), SIGKILL);
  EXPECT_FALSE((*child)->Stop(SIGTERM).ok()) << "there is nobody to stop any more";
}

TEST(ChildProcessTest, OutputIsAppended) {
  const std::string path = ::testing::TempDir() + "/child_process_test.log";
  for (int i = 0; i < 2; ++i) {
    auto child = ChildProcess::Start({"sh", "-c", "echo out; echo err >&2"},
                                     ChildProcess::Output::kAppend, path);
    ASSERT_TRUE(child.ok()) << child.status();
    ASSERT_TRUE((*child)->Wait().ok());
    EXPECT_TRUE((*child)->HasEnded());
  }
  EXPECT_EQ(*RunCommand({"cat", path}), "out\nerr\nout\nerr\n");
  EXPECT_FALSE(ChildProcess::Start({"true"}, ChildProcess::Output::kAppend, "/nowhere/x").ok());
}

TEST(ChildProcessTest, DestructorKills) {
  pid_t pid;
  {
    auto child = ChildProcess::Start({"sleep", "1000"}, ChildProcess::Output::kDiscard);
    ASSERT_TRUE(child.ok()) << child.status();
    pid = (*child)->pid();
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(ChildProcessTest, SecondWaitIsAnError) {
  auto child = ChildProcess::Start({"true"}, ChildProcess::Output::kDiscard);
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->Wait().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*child)->Wait().status()));
}

}  // namespace
}  // namespace fleetblame::testing
