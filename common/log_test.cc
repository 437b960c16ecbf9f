// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSinkForTest([this](std::string_view line) { lines_.emplace_back(line); });
    InitLogging({});
  }
  void TearDown() override {
    SetLogSinkForTest(nullptr);
    InitLogging({});
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, WritesLevelMessageAndFields) {
  LogWarning("aggregator is away", {{"address", "127.0.0.1:7443"}, {"retry_ns", 5}});
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], StartsWith("ts="));
  EXPECT_THAT(
      lines_[0],
      EndsWith("level=warning msg=\"aggregator is away\" address=127.0.0.1:7443 retry_ns=5"));
}

TEST_F(LogTest, LevelAndFormatFollowTheOptions) {
  LogDebug("quiet");
  EXPECT_THAT(lines_, SizeIs(0));
  InitLogging({.level = LogLevel::kDebug, .format = LogFormat::kJson});
  EXPECT_TRUE(LogEnabled(LogLevel::kDebug));
  LogDebug("loud");
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], EndsWith(R"("level":"debug","msg":"loud"})"));
}

TEST_F(LogTest, RepetitionsAreCountedAndTold) {
  for (int i = 0; i < 100; ++i) LogError("disk full", {{"i", i}});
  EXPECT_THAT(lines_, SizeIs(20));
  LogError("another");
  EXPECT_THAT(lines_, SizeIs(21));
  FlushLog();
  ASSERT_THAT(lines_, SizeIs(22));
  EXPECT_THAT(lines_.back(), HasSubstr("repeated=\"disk full\" count=80"));
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 10; ++i) LogInfo(absl::StrCat("thread ", t), {{"i", i}});
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(lines_, SizeIs(40));
  for (int t = 0; t < 4; ++t)
    EXPECT_THAT(lines_, Contains(EndsWith(absl::StrCat("msg=\"thread ", t, "\" i=9"))));
}

TEST(LogStderr, GoesToStandardErrorWithANewline) {
  testing::internal::CaptureStderr();
  LogInfo("to stderr");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), EndsWith("level=info msg=\"to stderr\"\n"));
}

TEST(LogStderr, AClosedReaderDoesNotEndTheProcess) {
  InitLogging({});
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(fds[1], STDERR_FILENO);
  close(fds[0]);
  close(fds[1]);
  LogInfo("nobody listens");
  dup2(saved, STDERR_FILENO);
  close(saved);
}

TEST(JournalStream, ComparesDeviceAndInode) {
  struct stat st;
  ASSERT_EQ(fstat(STDIN_FILENO, &st), 0);
  EXPECT_TRUE(IsJournalStream(absl::StrCat(st.st_dev, ":", st.st_ino).c_str(), STDIN_FILENO));
  EXPECT_FALSE(IsJournalStream(absl::StrCat(st.st_dev, ":", st.st_ino + 1).c_str(), STDIN_FILENO));
  EXPECT_FALSE(IsJournalStream(nullptr, STDIN_FILENO));
  EXPECT_FALSE(IsJournalStream("garbage", STDIN_FILENO));
  EXPECT_FALSE(IsJournalStream("", STDIN_FILENO));
}

}  // namespace
}  // namespace fleetblame
