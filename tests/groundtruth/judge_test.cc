// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/judge.h"

#include <gtest/gtest.h>

#include <sstream>

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::Operation;

constexpr agent::DeviceNumber kDisk{7, 3};
constexpr agent::ActorId kWriter = 1;
constexpr agent::ActorId kSyncer = 2;
constexpr agent::StackId kWriteStack = 10;
constexpr agent::StackId kOtherStack = 11;
constexpr agent::FileId kDataFile = 1;
constexpr agent::FileId kDirectory = 2;

class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() : ledger_(&symbols_, &info_) {
    std::istringstream table(
        "ffffffff81000000 T vfs_write\n"
        "ffffffff81000100 T __x64_sys_write\n"
        "ffffffff81000150 d some_data\n"
        "ffffffff81000200 t wb_workfn\t[mod]\n");
    symbols_ = KernelSymbols::Read(table);
    snapshot_.stacks = {{kWriteStack, {0xffffffff81000010, 0xffffffff81000160}},
                        {kOtherStack, {0xffffffff81000210}}};
    snapshot_.actors = {{kWriter, "fbw-writer", 0, "", false},
                        {kSyncer, "fbw-syncer", 0, "", false}};
    snapshot_.files = {{kDataFile, {7, 3}, 42, 0, "/f"}, {kDirectory, {7, 3}, 2, 0, "/"}};
    truth_.writers = {{"fbw-writer", 1000, {"sys_write"}}};
    truth_.data_inodes = {42};
  }

  void AddRow(agent::ActorId who, agent::StackId stack, agent::FileId file, Confidence confidence,
              uint64_t bytes, Operation operation = Operation::kWrite) {
    agent::Row row;
    row.key.device = kDisk;
    row.key.dirtier_actor = who;
    row.key.dirtier_stack = stack;
    row.key.file = file;
    row.key.confidence = confidence;
    row.key.operation = operation;
    row.values.bytes = bytes;
    snapshot_.rows.push_back(row);
  }

  Verdict Result() {
    ledger_.Add(snapshot_, {kDisk});
    return Judge(ledger_, truth_);
  }

  KernelSymbols symbols_;
  agent::TracerInfo info_;
  Ledger ledger_;
  agent::Snapshot snapshot_;
  Truth truth_;
};

TEST_F(JudgeTest, PerfectTracerGetsFullMarks) {
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 1000);
  const Verdict verdict = Result();
  EXPECT_EQ(verdict.data_share(), 1.0);
  EXPECT_EQ(verdict.all_share(), 1.0);
  EXPECT_EQ(verdict.wrong_exact_bytes, 0);
}

TEST_F(JudgeTest, ExactInAnotherDirectionMustBeRightToo) {
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 1000);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 512, Operation::kRead);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kIssuer, 512, Operation::kRead);
  const Verdict verdict = Result();
  EXPECT_EQ(verdict.total_bytes, 1000);
  EXPECT_EQ(verdict.wrong_exact_bytes, 512);
}

TEST_F(JudgeTest, AnotherWritersFileIsWrong) {
  truth_.writers = {{"fbw-writer", 1000, {"sys_write"}, 42}, {"fbw-syncer", 0, {"wb_"}, 43}};
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 1000);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 300);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kInode, 200);
  EXPECT_EQ(Result().wrong_exact_bytes, 300);
}

TEST_F(JudgeTest, WritersOfOneFileShareIt) {
  truth_.writers = {{"fbw-writer", 1000, {"sys_write"}, 42}, {"fbw-syncer", 0, {"wb_"}, 42}};
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 300);
  EXPECT_EQ(Result().wrong_exact_bytes, 0);
}

TEST_F(JudgeTest, BlamingTheSyncerIsWrong) {
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 400);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 600);
  const Verdict verdict = Result();
  EXPECT_DOUBLE_EQ(verdict.data_share(), 0.4);
  EXPECT_DOUBLE_EQ(verdict.all_share(), 0.4);
  EXPECT_EQ(verdict.wrong_exact_bytes, 600);
}

TEST_F(JudgeTest, RightNameWithWrongStackIsNoData) {
  AddRow(kWriter, kOtherStack, kDataFile, Confidence::kExact, 1000);
  const Verdict verdict = Result();
  EXPECT_EQ(verdict.data_share(), 0.0);
  EXPECT_EQ(verdict.all_share(), 1.0);
}

TEST_F(JudgeTest, MetadataDoesNotPassAsData) {
  AddRow(kWriter, kWriteStack, kDirectory, Confidence::kExact, 500);
  AddRow(kWriter, kWriteStack, agent::kNoFile, Confidence::kJournal, 500);
  EXPECT_EQ(Result().data_share(), 0.0);
}

TEST_F(JudgeTest, BytesBeyondTheTruthEarnNothing) {
  truth_.writers.push_back({"fbw-syncer", 1000, {"sys_write"}});
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 2000);
  EXPECT_DOUBLE_EQ(Result().data_share(), 0.5);
}

TEST_F(JudgeTest, TogetherOneMayHaveWhatTheOtherLacks) {
  truth_.writers.push_back({"fbw-syncer", 1000, {"sys_write"}});
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 1500);
  EXPECT_DOUBLE_EQ(Result().joint_data_share(), 0.75);
}

TEST_F(JudgeTest, SuperblockOfTheUnmounterIsNotWrongButItsDataIs) {
  truth_.metadata_comms = {"fbw-syncer"};
  AddRow(kSyncer, kOtherStack, agent::kNoFile, Confidence::kExact, 64);
  Verdict verdict = Result();
  EXPECT_EQ(verdict.wrong_exact_bytes, 0);
  EXPECT_EQ(verdict.own_metadata_bytes, 64);
  snapshot_.rows.clear();
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 64);
  verdict = Result();
  EXPECT_EQ(verdict.wrong_exact_bytes, 64);
  EXPECT_DOUBLE_EQ(verdict.own_metadata_share(), 0.5);
}

TEST_F(JudgeTest, TreeOfAnFsyncIsItsOwnButItsDataIsNot) {
  truth_.metadata_comms = {"fbw-syncer"};
  truth_.own_frames = {"wb_workfn"};
  AddRow(kSyncer, kOtherStack, agent::kNoFile, Confidence::kExact, 64);
  Verdict verdict = Result();
  EXPECT_EQ(verdict.own_metadata_bytes, 0);
  EXPECT_EQ(verdict.own_tree_bytes, 64);
  EXPECT_EQ(verdict.all_share(), 1.0);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 64);
  EXPECT_EQ(Result().wrong_exact_bytes, 64);
}

TEST_F(JudgeTest, TreeWithoutProofIsMetadata) {
  truth_.metadata_comms = {"fbw-syncer"};
  truth_.own_frames = {"no_such_function"};
  AddRow(kSyncer, kOtherStack, agent::kNoFile, Confidence::kExact, 64);
  EXPECT_EQ(Result().own_metadata_bytes, 64);
}

TEST_F(JudgeTest, HonestDoubtIsNotWrong) {
  AddRow(kSyncer, kOtherStack, agent::kNoFile, Confidence::kIssuer, 64);
  EXPECT_EQ(Result().wrong_exact_bytes, 0);
}

TEST_F(JudgeTest, OtherDirectionsAndDisksDoNotCount) {
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 64, Operation::kRead);
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 64);
  snapshot_.rows.back().key.device = {7, 4};
  EXPECT_EQ(Result().total_bytes, 0);
}

TEST_F(JudgeTest, IdsAreResolvedWhenTheyAreSeen) {
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 600);
  ledger_.Add(snapshot_, {kDisk});
  snapshot_.rows.clear();
  snapshot_.actors = {{kWriter, "someone-else", 0, "", false}};
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 400);
  const Verdict verdict = Result();
  EXPECT_DOUBLE_EQ(verdict.all_share(), 0.6);
  EXPECT_EQ(verdict.wrong_exact_bytes, 400);
}

TEST_F(JudgeTest, NewSpanKeepsDefinitions) {
  AddRow(kSyncer, kOtherStack, kDataFile, Confidence::kExact, 600);
  ledger_.Add(snapshot_, {kDisk});
  ledger_.BeginSpan();
  snapshot_ = agent::Snapshot();
  AddRow(kWriter, kWriteStack, kDataFile, Confidence::kExact, 1000);
  const Verdict verdict = Result();
  EXPECT_EQ(verdict.total_bytes, 1000);
  EXPECT_EQ(verdict.data_share(), 1.0);
}

TEST(KernelSymbolsTest, NamesTheFunctionBelow) {
  std::istringstream table("ffffffff81000000 T first\nffffffff81000100 t second [m]\n0 T zero\n");
  const KernelSymbols symbols = KernelSymbols::Read(table);
  EXPECT_EQ(symbols.Name(0xffffffff810000ff), "first");
  EXPECT_EQ(symbols.Name(0xffffffff81000100), "second");
  EXPECT_EQ(symbols.Name(0x10), "?");
}

}  // namespace
}  // namespace fleetblame::testing
