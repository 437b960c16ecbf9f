// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/spool.h"

#include "gmock/gmock.h"
#include "node-agent/spool/testing/spool_fixture.h"

namespace fleetblame::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class SpoolTest : public SpoolFixture {};

TEST_F(SpoolTest, BeginsEmptyWithARandomEpoch) {
  Open();
  EXPECT_NE(spool_->epoch(), 0u);
  EXPECT_THAT(ReadAll(), IsEmpty());
  EXPECT_EQ(spool_->previous_state().last_seq, 0u);
}

TEST_F(SpoolTest, NumbersFromOneAndReadsBack) {
  Open();
  Append(1);
  Append(2);
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(1, "window-1"), Pair(2, "window-2")));
  EXPECT_EQ(spool_->Read(3).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(spool_->Read(0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SpoolTest, KeepsEverythingOverARestart) {
  Open();
  const uint64_t epoch = spool_->epoch();
  for (uint64_t n = 1; n <= 5; ++n) Append(n);
  spool_->MarkSent(2);
  spool_->Free(2);
  Open();
  EXPECT_EQ(spool_->epoch(), epoch);
  EXPECT_EQ(spool_->previous_state().last_seq, 5u);
  EXPECT_EQ(spool_->previous_state().last_window_end_boot_ns, 6'000'000'000u);
  // What was acknowledged before comes back; the aggregator's HelloAck frees it again.
  ASSERT_TRUE(spool_->Resume(2).ok());
  EXPECT_THAT(ReadAll(),
              ElementsAre(Pair(3, "window-3"), Pair(4, "window-4"), Pair(5, "window-5")));
  Append(6);
  EXPECT_EQ(Read(6), "window-6");
}

TEST_F(SpoolTest, AfterACleanEndNothingIsSentTwice) {
  Open();
  for (uint64_t n = 1; n <= 5; ++n) Append(n);
  spool_->Free(4);
  spool_->Settle();  // one is not durable: it stays
  EXPECT_EQ(Read(5), "window-5");
  spool_->Free(5);
  spool_->Settle();
  Open();
  EXPECT_THAT(ReadAll(), IsEmpty());
  Append(6);
  EXPECT_EQ(Read(6), "window-6");
}

TEST_F(SpoolTest, FreesFilesAndKeepsCounting) {
  options_.segment_bytes = 2000;
  Open();
  for (uint64_t n = 1; n <= 50; ++n) Append(n, 100);
  const size_t before = SegmentFiles().size();
  EXPECT_GT(before, 5u);
  spool_->Free(50);
  EXPECT_LE(SegmentFiles().size(), 1u);
  EXPECT_THAT(ReadAll(), IsEmpty());
  Open();
  RemoveState();
  Append(51);
  EXPECT_THAT(ReadAll().back(), Pair(51, "window-51"));
}

TEST_F(SpoolTest, NumbersGoOnAfterEverythingWasFreedAndTheStateIsGone) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Append(n, 400'000);  // each fills more than a small file
  spool_->Free(3);
  spool_.reset();
  RemoveState();
  Open();
  Append(4);
  uint64_t first = 0;
  uint64_t last = 0;
  spool_->Range(&first, &last);
  EXPECT_EQ(last, 4u);
}

TEST_F(SpoolTest, AnAckBeyondTheEndFreesNothingMore) {
  Open();
  Append(1);
  spool_->Free(100);
  EXPECT_THAT(ReadAll(), IsEmpty());
  Append(2);
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(2, "window-2")));
}

TEST_F(SpoolTest, ResumeRenumbersWhatCollides) {
  // The disk lost the newest records and this boot's state; the aggregator has them.
  Open();
  Append(1);
  Append(2);
  spool_->MarkSent(2);
  Open();
  Append(3);
  Append(4);
  ASSERT_TRUE(spool_->Resume(3).ok());
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(4, "window-3"), Pair(5, "window-4")));
  Open();
  ASSERT_TRUE(spool_->Resume(3).ok());
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(4, "window-3"), Pair(5, "window-4")));
}

TEST_F(SpoolTest, ResumeBeyondTheEndContinuesThere) {
  Open();
  ASSERT_TRUE(spool_->Resume(41).ok());
  Append(1);
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(42, "window-1")));
  EXPECT_FALSE(spool_->Resume(uint64_t{1} << 60).ok());
  EXPECT_THAT(ReadAll(), ElementsAre(Pair(42, "window-1")));
}

TEST_F(SpoolTest, SplitPutsPartsInPlaceAndShiftsTheRest) {
  Open();
  for (uint64_t n = 1; n <= 4; ++n) Append(n);
  spool_->MarkSent(4);
  spool_->Free(1);
  ASSERT_TRUE(spool_->Split(2, {Window(21), Window(22), Window(23)}).ok());
  const auto expected = ElementsAre(Pair(2, "window-21"), Pair(3, "window-22"),
                                    Pair(4, "window-23"), Pair(5, "window-3"), Pair(6, "window-4"));
  EXPECT_THAT(ReadAll(), expected);
  EXPECT_EQ(spool_->sent_seq(), 1u);
  Append(7);
  EXPECT_EQ(Read(7), "window-7");
  Open();
  ASSERT_TRUE(spool_->Resume(1).ok());
  EXPECT_EQ(Read(3), "window-22");
  EXPECT_EQ(Read(6), "window-4");
  EXPECT_EQ(Read(7), "window-7");
}

TEST_F(SpoolTest, SetAsideKeepsACopyAndLeavesAGap) {
  Open();
  for (uint64_t n = 1; n <= 3; ++n) Append(n);
  spool_->SetAside(2);
  const auto expected =
      ElementsAre(Pair(1, "window-1"), Pair(2, "gap:rejected:1"), Pair(3, "window-3"));
  EXPECT_THAT(ReadAll(), expected);
  auto gap = spool_->Read(2);
  ASSERT_TRUE(gap.ok());
  EXPECT_EQ(gap->gaps(0).start_unix_ns(), 1'700'000'002'000'000'000u);
  EXPECT_EQ(gap->gaps(0).end_unix_ns(), 1'700'000'003'000'000'000u);
  size_t copies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/rejected")) {
    v1::Batch batch;
    ASSERT_TRUE(batch.ParseFromString(Slurp(entry.path().string())));
    EXPECT_EQ(Describe(batch), "window-2");
    ++copies;
  }
  EXPECT_EQ(copies, 1u);
  Open();
  EXPECT_THAT(ReadAll(), expected);
}

TEST_F(SpoolTest, RejectedCopiesAreBounded) {
  Open();
  for (uint64_t n = 1; n <= 40; ++n) Append(n);
  for (uint64_t n = 1; n <= 40; ++n) spool_->SetAside(n);
  size_t copies = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(directory_ + "/rejected")) {
    ++copies;
  }
  EXPECT_EQ(copies, 16u);
  EXPECT_EQ(spool_->stats().rejected_batches, 40u);
}

TEST_F(SpoolTest, TellsWhichDictionariesAreInUse) {
  Open();
  Append(1);
  EXPECT_THAT(spool_->DictionariesInUse(), ElementsAre(7));
  spool_->Free(1);
  EXPECT_THAT(spool_->DictionariesInUse(), IsEmpty());
}

}  // namespace
}  // namespace fleetblame::agent
