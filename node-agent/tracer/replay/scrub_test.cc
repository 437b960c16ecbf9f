// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/scrub.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "node-agent/tracer/replay/recorder.h"
#include "node-agent/tracer/replay/synthetic_script.h"

namespace fleetblame::agent {
namespace {

std::vector<Snapshot> All(Tracer* tracer) {
  std::vector<Snapshot> all;
  for (;;) {
    auto s = tracer->Collect();
    if (!s.ok()) return all;
    all.push_back(*std::move(s));
  }
}

TEST(ScrubRecording, NamesGoAndFiguresStay) {
  const std::string from = std::string(::testing::TempDir()) + "/scrub-from.rec";
  const std::string to = std::string(::testing::TempDir()) + "/scrub-to.rec";
  {
    auto recorder = CreateRecorder(std::make_unique<ScriptedTracer>(MakeSyntheticScript()), from);
    ASSERT_TRUE(recorder.ok());
    All(recorder->get());
  }
  ASSERT_TRUE(ScrubRecording(from, to, {.kernel_release = "6.18.0"}).ok());
  auto before = CreateReplayTracer(from);
  auto after = CreateReplayTracer(to);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ((*after)->info().kernel_release, "6.18.0");
  std::vector<Snapshot> a = All(before->get()), b = All(after->get());
  ASSERT_EQ(a.size(), b.size());
  int commands = 0, files = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].rows.size(), b[i].rows.size());
    for (size_t r = 0; r < a[i].rows.size(); ++r) {
      EXPECT_EQ(a[i].rows[r].key, b[i].rows[r].key);
      EXPECT_EQ(a[i].rows[r].values.bytes, b[i].rows[r].values.bytes);
    }
    for (size_t k = 0; k < a[i].actors.size(); ++k) {
      if (a[i].actors[k].kernel_thread) {
        EXPECT_EQ(b[i].actors[k].comm, a[i].actors[k].comm);
        continue;
      }
      ++commands;
      EXPECT_TRUE(absl::StartsWith(b[i].actors[k].comm, "command"));
      EXPECT_TRUE(absl::StartsWith(b[i].actors[k].cgroup_path, "/cgroup"));
    }
    for (const FileDefinition& f : b[i].files) {
      ++files;
      EXPECT_TRUE(absl::StartsWith(f.path, "/file"));
    }
  }
  EXPECT_GT(commands, 0);
  EXPECT_GT(files, 0);
}

TEST(ScrubRecording, SaysWhatIsWrong) {
  EXPECT_TRUE(absl::IsNotFound(ScrubRecording("/no/such/file", "/tmp/never")));
  EXPECT_TRUE(absl::IsInvalidArgument(ScrubRecording("x", "y", {.loop = true})));
}

}  // namespace
}  // namespace fleetblame::agent
