// SPDX-License-Identifier: Apache-2.0
//
// Golden: what a hand-made snapshot becomes on the wire.
#include "node-agent/compact/compactor.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/intent/intent.h"
#include "common/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node-agent/compact/row_codec.h"
#include "node-agent/tracer/replay/scripted_tracer.h"

namespace fleetblame::agent {
namespace {

using testing::ElementsAre;

constexpr char kKallsyms[] =
    "ffffffff81000000 T _stext\n"
    "ffffffff81001000 T vfs_write\n"
    "ffffffff81002000 T __x64_sys_write\n"
    "ffffffff81003000 T ext4_da_write_end\n"
    "ffffffff81004000 T wb_workfn\n"
    "ffffffff81005000 T end_of_text\n"
    "ffffffff81006000 T _etext\n";

class CompactorTest : public testing::Test {
 protected:
  CompactorTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/compactor-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    TracerScript script;
    script.info.kind = "replay";
    script.info.kernel_release = "6.1.0";
    script.info.reasons = {"", "background", "sync"};
    script.kallsyms = kKallsyms;
    tracer_ = std::make_unique<ScriptedTracer>(std::move(script));
    auto dictionary = Dictionary::Open({.directory = directory_, .sync = false});
    EXPECT_TRUE(dictionary.ok());
    dictionary_ = *std::move(dictionary);
    names_ = std::make_unique<LocalNames>(tracer_.get(), dictionary_.get());
    options_.boot_id = "boot-1";
    MakeCompactor();
  }
  ~CompactorTest() override { std::filesystem::remove_all(directory_); }

  void MakeCompactor() {
    compactor_ = std::make_unique<Compactor>(names_.get(), dictionary_.get(), options_);
  }

  static Snapshot BaseSnapshot() {
    Snapshot snapshot;
    snapshot.start_boot_ns = 100;
    snapshot.end_boot_ns = 200;
    snapshot.stacks = {{2, {0xffffffff81003010, 0xffffffff81001010, 0xffffffff81002010}},
                       {3, {0xffffffff81004010}},
                       // Another place in the same functions: the same intent.
                       {4, {0xffffffff81003020, 0xffffffff81001020, 0xffffffff81002020}}};
    snapshot.actors = {{1, "postgres", 77, "/system.slice/pg", false},
                       {2, "kworker/u4:1\xff", 0, "", true}};
    snapshot.files = {{1, {8, 1}, 12, 0, "/srv/data"}, {2, {8, 1}, 13, 0, "/srv/log"}};
    return snapshot;
  }

  static Row MakeRow(StackId dirtier, FileId file, uint64_t bytes, uint8_t reason = 1) {
    Row row;
    row.key.dirtier_stack = dirtier;
    row.key.issuer_stack = 3;
    row.key.dirtier_actor = 1;
    row.key.issuer_actor = 2;
    row.key.device = {8, 0};
    row.key.file = file;
    row.key.operation = Operation::kWrite;
    row.key.confidence = Confidence::kExact;
    row.key.reason = reason;
    row.values.ios = 1;
    row.values.bytes = bytes;
    row.values.wait_ns = 10;
    row.values.io_ns = 20;
    row.values.wait.Add(1, 1);
    row.values.io.Add(2, 1);
    return row;
  }

  void Add(const Snapshot& snapshot) {
    ASSERT_TRUE(names_->Define(snapshot).ok());
    compactor_->Add(snapshot);
  }

  v1::Batch FinishOne() {
    std::vector<v1::Batch> batches = compactor_->Finish({.realtime_offset_ns = 1000});
    EXPECT_EQ(batches.size(), 1u);
    return batches.at(0);
  }

  // One line a row: dirtier frames (modifier) | issuer | comm | file | bytes.
  std::vector<std::string> Text(const v1::Batch& batch) {
    auto refs = CollectRefs(batch);
    EXPECT_TRUE(refs.ok()) << refs.status();
    const v1::Definitions d = dictionary_->Define(*refs, true);
    auto intent = [&](uint32_t number) -> std::string {
      if (number == 0) return "-";
      const v1::Intent& i = d.intents().at(number);
      return absl::StrCat(absl::StrJoin(i.frames(), "<"), "(", i.modifier(), ")");
    };
    auto block = DecodeRows(batch);
    EXPECT_TRUE(block.ok());
    std::vector<std::string> lines;
    RowBlockReader reader(*block);
    for (BlockRow row; batch.row_count() > 0 && reader.Next(&row);) {
      lines.push_back(absl::StrCat(
          intent(row.dirtier_intent), " | ", intent(row.issuer_intent), " | ",
          row.dirtier_actor == 0 ? "-" : d.actors().at(row.dirtier_actor).comm(), " | ",
          d.devices().at(row.device).name(), " | ",
          row.file == 0 ? "-" : d.files().at(row.file).path(), " | ", row.ios, " ", row.bytes));
    }
    return lines;
  }

  std::map<std::string, uint64_t> Losses(const v1::Batch& batch) {
    std::map<std::string, uint64_t> losses;
    for (const v1::LossCounter& loss : batch.losses()) losses[loss.name()] = loss.delta();
    return losses;
  }

  std::string directory_;
  std::unique_ptr<ScriptedTracer> tracer_;
  std::unique_ptr<Dictionary> dictionary_;
  std::unique_ptr<LocalNames> names_;
  CompactorOptions options_;
  std::unique_ptr<Compactor> compactor_;
};

TEST_F(CompactorTest, Golden) {
  Snapshot snapshot = BaseSnapshot();
  snapshot.rows = {MakeRow(2, 1, 4096), MakeRow(4, 1, 100), MakeRow(2, 0, 7, /*reason=*/2)};
  snapshot.books = {{{8, 0}, Operation::kWrite, 4203, 10, 4213, 3, 3},
                    {{8, 0}, Operation::kRead, 0, 0, 0, 0, 0}};
  snapshot.losses = {{"idx_nomem", 4}, {"unused", 0}};
  Add(snapshot);
  const v1::Batch batch = FinishOne();
  EXPECT_THAT(Text(batch),
              ElementsAre("ext4_da_write_end<vfs_write<sys_write(background) | "
                          "wb_workfn(background) | postgres | sda | /srv/data | 2 4196",
                          "ext4_da_write_end<vfs_write<sys_write(sync) | wb_workfn(sync) | "
                          "postgres | sda | - | 1 7"));
  EXPECT_EQ(batch.window().start_boot_ns(), 100u);
  EXPECT_EQ(batch.window().end_boot_ns(), 200u);
  EXPECT_EQ(batch.window().realtime_offset_ns(), 1000);
  EXPECT_EQ(batch.window().boot_id(), "boot-1");
  // An idle direction is not sent.
  ASSERT_EQ(batch.coverage_size(), 1);
  EXPECT_EQ(batch.coverage(0).recorded_bytes(), 4203u);
  EXPECT_EQ(batch.coverage(0).lost_bytes(), 10u);
  EXPECT_EQ(batch.coverage(0).kernel_bytes(), 4213u);
  EXPECT_EQ(Losses(batch), (std::map<std::string, uint64_t>{{"idx_nomem", 4}}));
  EXPECT_EQ(batch.dictionary_id(), dictionary_->current_id());
}

TEST_F(CompactorTest, AnIdleWindowIsOneTinyBatch) {
  Add(BaseSnapshot());
  const v1::Batch batch = FinishOne();
  EXPECT_EQ(batch.row_count(), 0u);
  EXPECT_TRUE(batch.rows().empty());
  EXPECT_LT(batch.ByteSizeLong(), 100u);
}

TEST_F(CompactorTest, SnapshotsOfOneWindowAddUp) {
  Snapshot first = BaseSnapshot();
  first.rows = {MakeRow(2, 0, 10)};
  first.losses = {{"lost", 1}};
  Add(first);
  Snapshot second;
  second.start_boot_ns = 200;
  second.end_boot_ns = 300;
  second.rows = {MakeRow(2, 0, 20)};
  second.losses = {{"lost", 2}};
  Add(second);
  const v1::Batch batch = FinishOne();
  EXPECT_EQ(batch.row_count(), 1u);
  EXPECT_EQ(batch.window().start_boot_ns(), 100u);
  EXPECT_EQ(batch.window().end_boot_ns(), 300u);
  EXPECT_EQ(Losses(batch)["lost"], 3u);
  EXPECT_THAT(Text(batch)[0], testing::EndsWith("2 30"));
}

TEST_F(CompactorTest, OnlyTheTopFilesAreToldApart) {
  options_.max_files = 1;
  MakeCompactor();
  Snapshot snapshot = BaseSnapshot();
  snapshot.rows = {MakeRow(2, 1, 5), MakeRow(2, 2, 500)};
  Add(snapshot);
  const v1::Batch batch = FinishOne();
  EXPECT_THAT(Text(batch),
              ElementsAre(testing::EndsWith("| - | 1 5"), testing::EndsWith("| /srv/log | 1 500")));
  EXPECT_EQ(Losses(batch)["files_folded"], 1u);
}

TEST_F(CompactorTest, RowsAreCappedWithoutLosingBytes) {
  options_.max_rows = 20;
  MakeCompactor();
  Snapshot snapshot = BaseSnapshot();
  for (StackId stack = 100; stack < 200; ++stack) {
    snapshot.stacks.push_back({stack, {0xffffffff81001000 + 16 * (stack - 99), 0}});
    snapshot.rows.push_back(MakeRow(stack, 0, stack));
  }
  // Every stack ends in the same function and is the same intent: use actors to tell rows apart.
  snapshot.rows.clear();
  uint64_t bytes = 0;
  for (ActorId actor = 100; actor < 200; ++actor) {
    snapshot.actors.push_back({actor, absl::StrCat("task-", actor), 0, "", false});
    snapshot.rows.push_back(MakeRow(2, 0, actor));
    snapshot.rows.back().key.dirtier_actor = actor;
    bytes += actor;
  }
  Add(snapshot);
  const v1::Batch batch = FinishOne();
  EXPECT_LE(batch.row_count(), 20u);
  auto block = DecodeRows(batch);
  ASSERT_TRUE(block.ok());
  uint64_t sum = 0;
  for (const uint64_t b : block->bytes()) sum += b;
  EXPECT_EQ(sum, bytes);
  EXPECT_GT(Losses(batch)["rows_folded"], 0u);
}

TEST_F(CompactorTest, AWindowIsCutIntoBatches) {
  options_.cut.max_rows = 10;
  MakeCompactor();
  Snapshot snapshot = BaseSnapshot();
  for (ActorId actor = 100; actor < 125; ++actor) {
    snapshot.actors.push_back({actor, absl::StrCat("task-", actor), 0, "", false});
    snapshot.rows.push_back(MakeRow(2, 0, 1));
    snapshot.rows.back().key.dirtier_actor = actor;
  }
  snapshot.books = {{{8, 0}, Operation::kWrite, 1, 0, 1, 1, 1}};
  Add(snapshot);
  const std::vector<v1::Batch> batches = compactor_->Finish({});
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].row_count() + batches[1].row_count() + batches[2].row_count(), 25u);
  // What is counted once a window is in one batch only.
  EXPECT_EQ(batches[0].coverage_size(), 1);
  EXPECT_EQ(batches[1].coverage_size(), 0);
  EXPECT_EQ(batches[2].window().end_boot_ns(), 200u);
}

TEST_F(CompactorTest, LostAndUnknownIds) {
  Snapshot snapshot = BaseSnapshot();
  snapshot.rows = {MakeRow(kLostStack, 0, 1), MakeRow(999, 0, 2), MakeRow(kNoStack, 0, 3)};
  snapshot.rows[2].key.dirtier_actor = kNoActor;
  Add(snapshot);
  const v1::Batch batch = FinishOne();
  EXPECT_THAT(Text(batch),
              ElementsAre(testing::StartsWith("- | wb_workfn(background) | - |"),
                          testing::StartsWith("- | wb_workfn(background) | postgres |"),
                          testing::StartsWith("[lost](background) | ")));
  EXPECT_EQ(Losses(batch)["unknown_ids"], 1u);
}

TEST_F(CompactorTest, AReusedIdGetsItsNewMeaning) {
  Snapshot first = BaseSnapshot();
  first.rows = {MakeRow(2, 1, 1)};
  Add(first);
  FinishOne();
  Snapshot second;
  second.start_boot_ns = 200;
  second.end_boot_ns = 300;
  second.stacks = {{2, {0xffffffff81005010}}};
  second.actors = {{1, "mysqld", 0, "", false}};
  second.files = {{1, {8, 1}, 99, 0, "/other"}};
  second.rows = {MakeRow(2, 1, 1)};
  Add(second);
  EXPECT_THAT(Text(FinishOne()),
              ElementsAre(testing::StartsWith("end_of_text(background) | wb_workfn(background) | "
                                              "mysqld | sda | /other |")));
}

TEST_F(CompactorTest, TextsThatAreNoUtf8AreMadeSo) {
  Snapshot snapshot = BaseSnapshot();
  snapshot.rows = {MakeRow(2, 0, 1)};
  snapshot.rows[0].key.dirtier_actor = 2;
  Add(snapshot);
  EXPECT_THAT(Text(FinishOne())[0], testing::HasSubstr("kworker/u4:1\xEF\xBF\xBD"));
}

TEST_F(CompactorTest, TagWaitsGetDictionaryNumbersAndAddUp) {
  Snapshot snapshot = BaseSnapshot();
  v1::TagWaits& waits = snapshot.tag_waits.emplace();
  waits.set_source(v1::TAG_WAIT_SOURCE_KPROBE);
  // Two stacks that are one intent.
  for (uint32_t stack : {2, 4}) {
    v1::TagWaitRow* row = waits.add_rows();
    row->set_device(PackDevice({8, 0}));
    row->set_set(1);
    row->set_intent(stack);
    row->set_actor(1);
    row->set_waits(3);
    row->set_wait_ns(300);
  }
  v1::TagHolder* holder = waits.add_holders();
  holder->set_waiter_device(PackDevice({8, 0}));
  holder->set_holder_device(PackDevice({8, 16}));
  holder->set_tags_sum(12);
  holder->set_samples(6);
  waits.add_disks()->set_device(PackDevice({8, 16}));
  Add(snapshot);
  snapshot.start_boot_ns = 200;
  snapshot.end_boot_ns = 300;
  Add(snapshot);
  const v1::Batch batch = FinishOne();
  ASSERT_EQ(batch.tag_waits().rows_size(), 1);
  const v1::TagWaitRow& row = batch.tag_waits().rows(0);
  EXPECT_EQ(row.waits(), 12u);
  EXPECT_EQ(row.wait_ns(), 1200u);
  ASSERT_EQ(batch.tag_waits().holders_size(), 1);
  EXPECT_EQ(batch.tag_waits().holders(0).tags_sum(), 24u);
  EXPECT_EQ(batch.tag_waits().source(), v1::TAG_WAIT_SOURCE_KPROBE);
  // Everything that is named is defined along with the batch.
  auto refs = CollectRefs(batch);
  ASSERT_TRUE(refs.ok());
  const v1::Definitions d = dictionary_->Define(*refs, true);
  EXPECT_EQ(d.intents().at(row.intent()).frames_size(), 3);
  EXPECT_EQ(d.actors().at(row.actor()).comm(), "postgres");
  EXPECT_EQ(d.devices().at(row.device()).minor(), 0u);
  EXPECT_EQ(d.devices().at(batch.tag_waits().holders(0).holder_device()).minor(), 16u);
  EXPECT_EQ(batch.tag_waits().disks(0).device(), batch.tag_waits().holders(0).holder_device());
  Add(BaseSnapshot());
  EXPECT_FALSE(FinishOne().has_tag_waits()) << "each window counts once";
}

TEST_F(CompactorTest, ANewDictionaryGetsItsOwnNumbers) {
  Snapshot snapshot = BaseSnapshot();
  snapshot.rows = {MakeRow(2, 1, 1)};
  Add(snapshot);
  const v1::Batch before = FinishOne();
  const std::vector<std::string> text = Text(before);
  dictionary_->NewDictionary();
  Snapshot second;
  second.start_boot_ns = 200;
  second.end_boot_ns = 300;
  second.rows = {MakeRow(2, 1, 1)};
  Add(second);
  const v1::Batch after = FinishOne();
  EXPECT_NE(after.dictionary_id(), before.dictionary_id());
  EXPECT_EQ(Text(after), text);
  EXPECT_EQ(Text(before), text);
}

}  // namespace
}  // namespace fleetblame::agent
