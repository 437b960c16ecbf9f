// SPDX-License-Identifier: Apache-2.0
#include "node-agent/trace/trace_mode.h"

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node-agent/tracer/replay/scripted_tracer.h"

namespace fleetblame::agent {
namespace {

constexpr int64_t kOffset = 1'000'000;

class TraceModeTest : public testing::Test {
 protected:
  TraceModeTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/trace-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    TracerScript script;
    script.info.kind = "replay";
    script.info.reasons = {"", "sync"};
    script.kallsyms =
        "ffffffff81000000 T _stext\n"
        "ffffffff81001000 T vfs_write\n"
        "ffffffff81006000 T _etext\n";
    tracer_ = std::make_unique<ScriptedTracer>(std::move(script));
    auto dictionary = Dictionary::Open({.directory = directory_, .sync = false});
    EXPECT_TRUE(dictionary.ok());
    dictionary_ = *std::move(dictionary);
    names_ = std::make_unique<LocalNames>(tracer_.get(), dictionary_.get());
    directive_.set_trace_id(5);
    directive_.set_max_duration_ns(60'000'000'000);
    MakeTrace();
  }
  ~TraceModeTest() override {
    trace_.reset();
    std::filesystem::remove_all(directory_);
  }

  void MakeTrace() {
    trace_ = std::make_unique<TraceMode>(tracer_.get(), names_.get(), dictionary_.get(), options_);
  }

  static TraceRecord Record(uint64_t sector, uint64_t io_ns = 100) {
    TraceRecord record;
    record.complete_boot_ns = 5000 + sector;
    record.device = {7, 0};
    record.sector = sector;
    record.bytes = 4096;
    record.operation = Operation::kWrite;
    record.rwbs = "WS";
    record.wait_ns = 10;
    record.io_ns = io_ns;
    record.confidence = Confidence::kExact;
    record.reason = 1;
    record.dirtier_stack = 2;
    record.issuer_stack = 2;
    record.dirtier_actor = 1;
    record.issuer_actor = 1;
    record.dirtier_tid = 42;
    record.file = 1;
    record.merged_bios = 3;
    return record;
  }

  // What the next Collect would bring.
  void DefineIds() {
    Snapshot snapshot;
    snapshot.stacks = {{2, {0xffffffff81001010}}};
    snapshot.actors = {{1, "postgres", 7, "/pg", false}};
    snapshot.files = {{1, {8, 1}, 12, 0, "/srv/data"}};
    ASSERT_TRUE(names_->Define(snapshot).ok());
  }

  void WaitForRecords(uint64_t count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (trace_->seen() < count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(2));
    }
    ASSERT_GE(trace_->seen(), count);
  }

  // Plays records through trace mode; returns what it would send.
  v1::TraceEvents Play(std::deque<TraceRecord> records) {
    const uint64_t before = trace_->seen();
    tracer_->script().trace = records;
    EXPECT_TRUE(trace_->Apply(&directive_, absl::Now()).ok());
    WaitForRecords(before + records.size());
    trace_->BeforeCollect();
    DefineIds();
    trace_->Resolve(absl::Now(), kOffset);
    return trace_->TakeEvents().value_or(v1::TraceEvents());
  }

  std::string directory_;
  std::unique_ptr<ScriptedTracer> tracer_;
  std::unique_ptr<Dictionary> dictionary_;
  std::unique_ptr<LocalNames> names_;
  TraceModeOptions options_;
  v1::TraceDirective directive_;
  std::unique_ptr<TraceMode> trace_;
};

TEST_F(TraceModeTest, AnEventIsReadableAlone) {
  const v1::TraceEvents events = Play({Record(8)});
  EXPECT_EQ(events.trace_id(), 5u);
  EXPECT_EQ(events.dropped(), 0u);
  ASSERT_EQ(events.events_size(), 1);
  const v1::TraceEvent& event = events.events(0);
  EXPECT_EQ(event.time_unix_ns(), 5008u + kOffset);
  EXPECT_EQ(event.device(), "loop0");
  EXPECT_EQ(event.sector(), 8u);
  EXPECT_EQ(event.bytes(), 4096u);
  EXPECT_EQ(event.operation(), v1::OPERATION_WRITE);
  EXPECT_EQ(event.rwbs(), "WS");
  EXPECT_EQ(event.dirtier().comm(), "postgres");
  EXPECT_EQ(event.dirtier_tid(), 42u);
  EXPECT_EQ(event.dirtier_intent_id().size(), 16u);
  EXPECT_THAT(event.dirtier_frames(), testing::ElementsAre("vfs_write"));
  EXPECT_EQ(event.modifier(), "sync");
  EXPECT_EQ(event.file().path(), "/srv/data");
  EXPECT_EQ(event.merged_bios(), 3u);
}

TEST_F(TraceModeTest, TheDirectiveFilters) {
  directive_.set_min_total_ns(1000);
  directive_.add_operations(v1::OPERATION_WRITE);
  directive_.add_devices("loop0");
  TraceRecord read = Record(2, 5000);
  read.operation = Operation::kRead;
  TraceRecord elsewhere = Record(3, 5000);
  elsewhere.device = {7, 1};
  const v1::TraceEvents events = Play({Record(1, 10), read, elsewhere, Record(4, 990)});
  ASSERT_EQ(events.events_size(), 1);
  EXPECT_EQ(events.events(0).sector(), 4u);
  EXPECT_EQ(events.dropped(), 0u);
}

TEST_F(TraceModeTest, TheRateIsLimitedAndCounted) {
  directive_.set_max_events_per_second(10);
  std::deque<TraceRecord> records;
  for (uint64_t n = 0; n < 500; ++n) records.push_back(Record(n));
  const v1::TraceEvents events = Play(records);
  EXPECT_GE(events.events_size(), 10);
  EXPECT_LE(events.events_size(), 60);
  EXPECT_EQ(events.dropped() + static_cast<uint64_t>(events.events_size()), 500u);
}

TEST_F(TraceModeTest, WhatTheKernelDroppedIsPassedOn) {
  tracer_->script().trace_dropped = 7;
  EXPECT_EQ(Play({Record(1)}).dropped(), 7u);
}

TEST_F(TraceModeTest, QueuesAreBounded) {
  options_.max_events = 10;
  options_.max_events_per_message = 4;
  MakeTrace();
  std::deque<TraceRecord> records;
  for (uint64_t n = 0; n < 100; ++n) records.push_back(Record(n));
  v1::TraceEvents events = Play(records);
  EXPECT_EQ(events.events_size(), 4);
  EXPECT_EQ(events.dropped(), 90u);
  // The newest are kept.
  EXPECT_EQ(events.events(0).sector(), 90u);
  EXPECT_EQ(trace_->TakeEvents()->events_size(), 4);
  EXPECT_EQ(trace_->TakeEvents()->events_size(), 2);
  EXPECT_FALSE(trace_->TakeEvents().has_value());
}

TEST_F(TraceModeTest, EndsByItselfAndIsNotStartedAgainByTheSameDirective) {
  const absl::Time now = absl::Now();
  ASSERT_TRUE(trace_->Apply(&directive_, now).ok());
  EXPECT_TRUE(trace_->on());
  trace_->Resolve(now + absl::Seconds(59), kOffset);
  EXPECT_TRUE(trace_->on());
  trace_->Resolve(now + absl::Seconds(61), kOffset);
  EXPECT_FALSE(trace_->on());
  ASSERT_TRUE(trace_->Apply(&directive_, now + absl::Seconds(62)).ok());
  EXPECT_FALSE(trace_->on());
  directive_.set_trace_id(6);
  ASSERT_TRUE(trace_->Apply(&directive_, now + absl::Seconds(63)).ok());
  EXPECT_TRUE(trace_->on());
}

TEST_F(TraceModeTest, AbsentMeansOff) {
  ASSERT_TRUE(trace_->Apply(&directive_, absl::Now()).ok());
  ASSERT_TRUE(trace_->Apply(nullptr, absl::Now()).ok());
  EXPECT_FALSE(trace_->on());
}

TEST_F(TraceModeTest, NobodyTracesForEver) {
  directive_.set_max_duration_ns(UINT64_MAX);
  const absl::Time now = absl::Now();
  ASSERT_TRUE(trace_->Apply(&directive_, now).ok());
  trace_->Resolve(now + absl::Hours(1) + absl::Seconds(1), kOffset);
  EXPECT_FALSE(trace_->on());
}

TEST_F(TraceModeTest, WhatIsPolledDuringCollectWaitsForTheNext) {
  trace_->BeforeCollect();
  // Comes in while the tracer gathers the definitions.
  tracer_->script().trace = {Record(1)};
  ASSERT_TRUE(trace_->Apply(&directive_, absl::Now()).ok());
  WaitForRecords(1);
  trace_->Resolve(absl::Now(), kOffset);
  EXPECT_FALSE(trace_->TakeEvents().has_value());

  trace_->BeforeCollect();
  DefineIds();
  trace_->Resolve(absl::Now(), kOffset);
  const auto events = trace_->TakeEvents();
  ASSERT_TRUE(events.has_value());
  ASSERT_EQ(events->events_size(), 1);
  EXPECT_TRUE(events->events(0).has_dirtier());
}

TEST_F(TraceModeTest, IdsThatNobodyDefinedStayEmpty) {
  tracer_->script().trace = {Record(1)};
  ASSERT_TRUE(trace_->Apply(&directive_, absl::Now()).ok());
  WaitForRecords(1);
  trace_->BeforeCollect();
  trace_->Resolve(absl::Now(), kOffset);
  const auto events = trace_->TakeEvents();
  ASSERT_TRUE(events.has_value());
  ASSERT_EQ(events->events_size(), 1);
  EXPECT_FALSE(events->events(0).has_dirtier());
  EXPECT_EQ(events->events(0).dirtier_intent_id(), "");
}

}  // namespace
}  // namespace fleetblame::agent
