// SPDX-License-Identifier: Apache-2.0
//
// The control of the ground truth: every scenario's own claims hold (the writers really moved that
// much), and a tracer that sees nothing fails all bars. Nothing here needs BPF.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "node-agent/tracer/tracer.h"
#include "tests/groundtruth/scenario.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

std::string writer_program;

class BlindTracer : public agent::Tracer {
 public:
  const agent::TracerInfo& info() const override { return info_; }
  absl::Status SetDevices(const agent::DeviceSelection&) override { return absl::OkStatus(); }
  absl::StatusOr<agent::Snapshot> Collect() override { return agent::Snapshot(); }
  absl::Status SetTrace(bool) override { return absl::OkStatus(); }
  absl::Status PollTrace(absl::Duration, const std::function<void(const agent::TraceRecord&)>&,
                         uint64_t*) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override {
    return std::make_unique<std::istringstream>("ffffffff81000000 T start\n");
  }
  uint64_t SymbolGeneration() override { return 1; }

 private:
  agent::TracerInfo info_;
};

class ControlTest : public ::testing::TestWithParam<FilesystemKind> {};

TEST_P(ControlTest, BlindTracerGetsNoMarks) {
  const FilesystemKind kind = GetParam();
  if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;
  if (!HaveProgram(MkfsProgram(kind))) GTEST_SKIP() << MkfsProgram(kind) << " is not installed";
  auto blind = Defendant::Create(std::make_unique<BlindTracer>());
  ASSERT_TRUE(blind.ok()) << blind.status();
  for (const Scenario& scenario : AllScenarios()) {
    SCOPED_TRACE(scenario.name);
    auto outcome = RunScenario(kind, scenario, writer_program,
                               [&blind] { return absl::StatusOr<Defendant*>(blind->get()); });
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->verdict.data_share(), 0.0);
    EXPECT_GT(outcome->kernel.read_bytes + outcome->kernel.write_bytes, 0);
    EXPECT_TRUE(outcome->books.empty());
    std::printf("%s/%s: the device wrote %.2f MB and read %.2f MB\n", FilesystemName(kind),
                scenario.name.c_str(), outcome->kernel.write_bytes / 1e6,
                outcome->kernel.read_bytes / 1e6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ControlTest,
                         ::testing::Values(FilesystemKind::kExt4, FilesystemKind::kExt4NoJournal,
                                           FilesystemKind::kExt4DataJournal, FilesystemKind::kXfs,
                                           FilesystemKind::kBtrfs),
                         [](const auto& info) { return FilesystemName(info.param); });

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
