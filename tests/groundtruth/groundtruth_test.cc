// SPDX-License-Identifier: Apache-2.0
//
// Every filesystem times every scenario on the real kernel, against the bars: the books balance
// exactly, at least 99 % of file data and 90 to 95 % of all bytes are charged to those who wrote
// them, and nothing that is called exact is charged to anyone else.
//
//   bazel test //tests/groundtruth:groundtruth_test
//   ... --test_arg=--gtest_filter='*xfs*'
// The cases All/* are every scenario on every filesystem; Paths/* are other ways to the disk, and
// MorePaths/* the same on filesystems where they show little that is new.
// Each case has a tracer of its own, which has seen nothing before; with --one-tracer (the target
// long_lived_test) one tracer lives through all of them, and with --unwatch as well
// (late_watch_test) it watches no loop device between the cases, so that each filesystem is made
// unwatched.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "node-agent/tracer/bpf/bpf_tracer.h"
#include "tests/groundtruth/figures.h"
#include "tests/groundtruth/scenario.h"
#include "tests/groundtruth/scratch_disk.h"
#include "tests/groundtruth/test_main.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

using agent::Operation;

constexpr double kDataBar = 0.99;
// What syncer and unmounter may have dirtied themselves.
constexpr double kOwnMetadataBar = 0.01;
// What an fsync on btrfs may add as a log tree of its own. 5.10 writes the most (1.3 %).
constexpr double kOwnTreeBar = 0.03;

std::string writer_program;
// One tracer for all cases instead of a fresh one for each: it sees disks and filesystems come and
// go under the same device numbers, as an agent does.
bool one_tracer = false;
bool unwatch = false;

class GroundTruthTest
    : public ::testing::TestWithParam<std::tuple<FilesystemKind, const Scenario*>> {
 protected:
  static absl::StatusOr<Defendant*> TheDefendant() {
    if (defendant_ == nullptr || !one_tracer) {
      defendant_.reset();
      auto tracer = agent::CreateBpfTracer(agent::BpfTracerOptions());
      if (!tracer.ok()) return tracer.status();
      auto defendant = Defendant::Create(*std::move(tracer));
      if (!defendant.ok()) return defendant.status();
      defendant_ = *std::move(defendant);
    }
    return defendant_.get();
  }

  void TearDown() override {
    if (unwatch && defendant_ != nullptr) {
      EXPECT_EQ(defendant_->Watch({"!loop*"}), absl::OkStatus());
    }
  }

  static void TearDownTestSuite() {
    if (!one_tracer) Dismiss();
  }

 public:
  static void Dismiss() { defendant_.reset(); }

 private:
  static std::unique_ptr<Defendant> defendant_;
};

std::unique_ptr<Defendant> GroundTruthTest::defendant_;

// One tracer for all suites goes when all are over.
class LastTracer : public ::testing::Environment {
 public:
  void TearDown() override { GroundTruthTest::Dismiss(); }
};

// recorded + lost = what the kernel counted, by its own account and by ours, and the rows add up to
// what was recorded.
void ExpectBalancedBooks(const Outcome& outcome, Operation direction, uint64_t kernel_bytes) {
  agent::Books books;
  if (auto found = outcome.books.find(direction); found != outcome.books.end()) {
    books = found->second;
  }
  auto sum = [direction](const std::map<Operation, uint64_t>& by_direction) {
    auto found = by_direction.find(direction);
    return found == by_direction.end() ? 0 : found->second;
  };
  EXPECT_EQ(books.recorded_bytes + books.lost_bytes, kernel_bytes)
      << "recorded " << books.recorded_bytes << ", lost " << books.lost_bytes;
  EXPECT_EQ(books.kernel_bytes, kernel_bytes);
  EXPECT_EQ(sum(outcome.charged_bytes), books.recorded_bytes);
}

void Tell(const std::string& name, const Outcome& outcome, Operation direction) {
  const Verdict& verdict = outcome.verdict;
  Figures figures;
  for (const WriterVerdict& writer : verdict.writers) {
    figures.data += writer.truth_bytes;
    figures.data_right += std::min(writer.data_bytes, writer.truth_bytes);
  }
  figures.all = verdict.total_bytes;
  figures.all_right = verdict.writers_bytes + verdict.own_tree_bytes;
  figures.wrong = verdict.wrong_exact_bytes;
  auto books = outcome.books.find(direction);
  figures.lost = books == outcome.books.end() ? 0 : books->second.lost_bytes;
  figures.by_confidence = verdict.by_confidence;
  TellFigures(name, figures, verdict.data_share(), verdict.all_share());
}

// What single scenarios ask for besides.
void ExpectDetails(const Scenario& scenario, const Outcome& outcome) {
  uint64_t data = 0;
  std::set<std::string> writers;
  for (const WriterVerdict& writer : outcome.verdict.writers) {
    data += writer.truth_bytes;
    writers.insert(writer.comm);
    EXPECT_GE(writer.all_bytes, scenario.each_bar * outcome.verdict.total_bytes) << writer.comm;
  }
  if (scenario.flushes != 0) {
    std::map<std::string, uint64_t> flushes = outcome.flushes;
    flushes.erase("fbw-umount");  // it has its own
    for (const std::string& writer : writers) {
      EXPECT_EQ(flushes[writer], scenario.flushes) << writer;
    }
    EXPECT_EQ(flushes.size(), writers.size()) << "somebody else was charged with flushes";
  }
  if (scenario.writeback == Writeback::kReclaim) {
    // Other reasons may come before reclaim: what counts is that the kernel says the same.
    const auto kernel = outcome.kernel_reasons.find(scenario.reason);
    ASSERT_NE(kernel, outcome.kernel_reasons.end()) << "no " << scenario.reason;
    EXPECT_GT(kernel->second, data / 10);
    EXPECT_NEAR(outcome.reason_bytes, kernel->second, data / 20);
  } else if (!scenario.reason.empty()) {
    EXPECT_GE(outcome.reason_bytes, 0.9 * data) << scenario.reason;
  }
  if (scenario.operation != Operation::kUnspecified) {
    EXPECT_EQ(outcome.operation_bytes, data);
  }
  if (scenario.issued_in.empty()) return;
  EXPECT_FALSE(outcome.issued_in_bytes.empty()) << "nothing was issued in " << scenario.issued_in;
  for (const auto& [comm, bytes] : outcome.issued_in_bytes) {
    EXPECT_TRUE(writers.contains(comm))
        << comm << " issued " << bytes << " bytes in " << scenario.issued_in;
  }
}

TEST_P(GroundTruthTest, WriterGetsTheBlame) {
  const auto [kind, scenario] = GetParam();
  if (const std::string why = ScratchDisksUnavailable(); !why.empty()) GTEST_SKIP() << why;

  auto outcome = RunScenario(kind, *scenario, writer_program, TheDefendant);
  if (absl::IsUnimplemented(outcome.status())) GTEST_SKIP() << outcome.status().message();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const Verdict& verdict = outcome->verdict;
  Tell(absl::StrCat(FilesystemName(kind), "/", scenario->name), *outcome, scenario->direction);

  ExpectBalancedBooks(*outcome, Operation::kRead, outcome->kernel.read_bytes);
  ExpectBalancedBooks(*outcome, Operation::kWrite, outcome->kernel.write_bytes);
  ExpectBalancedBooks(*outcome, Operation::kDiscard, outcome->kernel.discard_bytes);
  for (const WriterVerdict& writer : verdict.writers) {
    if (scenario->no_data || scenario->together) break;
    EXPECT_GE(writer.data_share(), kDataBar) << writer.comm << " got " << writer.data_bytes
                                             << " of " << writer.truth_bytes << " bytes of data";
  }
  if (scenario->together) {
    EXPECT_GE(verdict.joint_data_share(), kDataBar);
  }
  // Of nothing everything is right.
  EXPECT_TRUE(verdict.total_bytes > 0 || scenario->flushes > 0);
  ExpectDetails(*scenario, *outcome);
  EXPECT_GE(verdict.all_share(), scenario->all_bar);
  EXPECT_EQ(verdict.wrong_exact_bytes, 0);
  EXPECT_LE(verdict.own_metadata_share(), kOwnMetadataBar);
  EXPECT_LE(verdict.own_tree_share(), kOwnTreeBar);
  if (HasFailure()) std::printf("%s", outcome->dump.c_str());
}

std::vector<const Scenario*> ScenarioPointers() {
  std::vector<const Scenario*> pointers;
  for (const Scenario& scenario : AllScenarios()) pointers.push_back(&scenario);
  return pointers;
}

std::string CaseName(
    const ::testing::TestParamInfo<std::tuple<FilesystemKind, const Scenario*>>& info) {
  const auto [kind, scenario] = info.param;
  return absl::StrCat(FilesystemName(kind), "_", scenario->name);
}

INSTANTIATE_TEST_SUITE_P(
    All, GroundTruthTest,
    ::testing::Combine(::testing::Values(FilesystemKind::kExt4, FilesystemKind::kExt4NoJournal,
                                         FilesystemKind::kExt4DataJournal, FilesystemKind::kXfs,
                                         FilesystemKind::kBtrfs),
                       ::testing::ValuesIn(ScenarioPointers())),
    CaseName);

std::vector<std::tuple<FilesystemKind, const Scenario*>> CasesOf(
    std::vector<FilesystemKind> Path::*filesystems) {
  std::vector<std::tuple<FilesystemKind, const Scenario*>> cases;
  for (const Path& path : AllPaths()) {
    for (FilesystemKind kind : path.*filesystems) cases.emplace_back(kind, &path.scenario);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Paths, GroundTruthTest, ::testing::ValuesIn(CasesOf(&Path::filesystems)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(MorePaths, GroundTruthTest, ::testing::ValuesIn(CasesOf(&Path::also)),
                         CaseName);

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--one-tracer") fleetblame::testing::one_tracer = true;
    if (std::string(argv[i]) == "--unwatch") fleetblame::testing::unwatch = true;
  }
  ::testing::AddGlobalTestEnvironment(new fleetblame::testing::LastTracer);
  return fleetblame::testing::RunTestsWithWriter(argc, argv, &fleetblame::testing::writer_program);
}
