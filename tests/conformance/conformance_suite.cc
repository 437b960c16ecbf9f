// SPDX-License-Identifier: Apache-2.0
//
// The tracer contract as tests; they run on every subject of the binary that they are linked into.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/intent/intent.h"
#include "node-agent/symbols/stack_symbols.h"
#include "node-agent/tracer/replay/recorder.h"
#include "node-agent/tracer/replay/replay_tracer.h"
#include "node-agent/tracer/replay/snapshot_text.h"
#include "tests/conformance/contract_checker.h"
#include "tests/conformance/subject.h"

namespace fleetblame::testing {
namespace {

using agent::Operation;
using agent::Snapshot;
using agent::Tracer;
using agent::TraceRecord;
using ::testing::AnyOf;
using ::testing::IsEmpty;

constexpr int kLiveWindows = 4;
constexpr int kMostLiveWindows = 20;

class TracerConformance : public ::testing::TestWithParam<SubjectSpec> {
 protected:
  void SetUp() override {
    auto subject = GetParam().create();
    if (absl::IsUnavailable(subject.status())) {
      GTEST_SKIP() << std::string(subject.status().message());
    }
    ASSERT_TRUE(subject.ok()) << subject.status();
    subject_ = *std::move(subject);
    auto tracer = subject_->Create();
    ASSERT_TRUE(tracer.ok()) << tracer.status();
    tracer_ = *std::move(tracer);
  }

  bool live() const { return subject_->live(); }

  void Poll(Tracer* tracer, ContractChecker* checker, std::string* text = nullptr) {
    ASSERT_TRUE(tracer
                    ->PollTrace(
                        absl::ZeroDuration(),
                        [&](const TraceRecord& r) {
                          checker->Check(r);
                          if (text != nullptr) *text += TraceRecordText(r);
                        },
                        &dropped_)
                    .ok());
  }

  // Works and collects until the end of the subject, or for some windows when it has none. The last
  // window of a live one begins and ends at rest: as long as somebody else, a thread of the kernel
  // say, moves the device while it is read, there is one more.
  std::vector<Snapshot> Run(Tracer* tracer, ContractChecker* checker, std::string* text = nullptr) {
    std::vector<Snapshot> snapshots;
    bool moved = false;
    for (int i = 0; !live() || i < kLiveWindows || (moved && i < kMostLiveWindows); ++i) {
      if (i + 1 < kLiveWindows) {
        EXPECT_TRUE(subject_->Work().ok());
      }
      Poll(tracer, checker, text);
      const std::string before = subject_->Counted();
      auto snapshot = tracer->Collect();
      moved = subject_->Counted() != before;
      if (!snapshot.ok()) {
        EXPECT_TRUE(!live() && absl::IsOutOfRange(snapshot.status())) << snapshot.status();
        break;
      }
      checker->Check(*snapshot);
      if (text != nullptr) *text += SnapshotText(*snapshot);
      snapshots.push_back(*std::move(snapshot));
    }
    Poll(tracer, checker, text);
    return snapshots;
  }

  std::unique_ptr<Subject> subject_;
  std::unique_ptr<Tracer> tracer_;
  uint64_t dropped_ = 0;
};

TEST_P(TracerConformance, SaysWhatItIs) {
  ContractChecker checker(tracer_->info());
  checker.CheckInfo();
  EXPECT_THAT(checker.violations(), IsEmpty());
}

TEST_P(TracerConformance, WindowsKeepTheContract) {
  ContractChecker checker(tracer_->info());
  std::vector<Snapshot> snapshots = Run(tracer_.get(), &checker);
  checker.CheckEnd();
  EXPECT_THAT(checker.violations(), IsEmpty());
  EXPECT_GE(snapshots.size(), 2u);
  EXPECT_GT(checker.rows(), 0u);
  EXPECT_GT(checker.row_bytes(), 0u);
}

TEST_P(TracerConformance, BooksBalanceFromRestToRest) {
  ContractChecker checker(tracer_->info());
  Run(tracer_.get(), &checker);
  uint64_t written = 0;
  for (const auto& [key, total] : checker.totals()) {
    EXPECT_EQ(total.recorded_bytes + total.lost_bytes, total.kernel_bytes)
        << key.first.major << ":" << key.first.minor << " direction "
        << static_cast<int>(key.second);
    // IOs need not be equal: the kernel counts requests, which merge bios and split them.
    EXPECT_EQ(total.recorded_ios > 0, total.kernel_ios > 0);
    if (key.second == Operation::kWrite) written += total.recorded_bytes;
  }
  EXPECT_GT(written, 0u);
}

TEST_P(TracerConformance, SelectsDevices) {
  absl::Status status = tracer_->SetDevices({{"nosuchdisk"}});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(std::string(status.message()).find("nosuchdisk"), std::string::npos) << status;
  // A glob that matches nothing is no error: the disk may come later.
  EXPECT_TRUE(tracer_->SetDevices({{"nosuchdisk*"}}).ok());
  // Nothing may be seen now, from the next whole window on.
  EXPECT_TRUE(tracer_->Collect().ok());
  EXPECT_TRUE(subject_->Work().ok());
  auto nothing = tracer_->Collect();
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->rows.size(), 0u);
  EXPECT_EQ(nothing->books.size(), 0u);
  // An error leaves that as it is.
  EXPECT_TRUE(absl::IsNotFound(tracer_->SetDevices({{subject_->device(), "nosuchdisk"}})));
  EXPECT_TRUE(subject_->Work().ok());
  nothing = tracer_->Collect();
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->rows.size(), 0u);
  // What "!" takes away is away; the last match wins.
  EXPECT_TRUE(tracer_->SetDevices({{"*", absl::StrCat("!", subject_->device())}}).ok());
  EXPECT_TRUE(tracer_->SetDevices({{subject_->device()}}).ok());
  if (live()) {
    EXPECT_TRUE(tracer_->Collect().ok());
    EXPECT_TRUE(subject_->Work().ok());
    auto something = tracer_->Collect();
    ASSERT_TRUE(something.ok());
    EXPECT_GT(something->rows.size(), 0u);
    std::set<agent::DeviceNumber> devices;
    for (const agent::Row& r : something->rows) devices.insert(r.key.device);
    EXPECT_EQ(devices.size(), 1u);
  }
}

TEST_P(TracerConformance, TracesOnlyWhileTold) {
  ContractChecker checker(tracer_->info());
  EXPECT_TRUE(subject_->Work().ok());
  Poll(tracer_.get(), &checker);
  EXPECT_EQ(checker.trace_records(), 0u);
  ASSERT_TRUE(tracer_->SetTrace(true).ok());
  ASSERT_TRUE(tracer_->SetTrace(true).ok());
  EXPECT_TRUE(subject_->Work().ok());
  Poll(tracer_.get(), &checker);
  EXPECT_GT(checker.trace_records(), 0u);
  auto snapshot = tracer_->Collect();
  ASSERT_TRUE(snapshot.ok());
  checker.Check(*snapshot);
  ASSERT_TRUE(tracer_->SetTrace(false).ok());
  Poll(tracer_.get(), &checker);  // what was on its way
  uint64_t before = checker.trace_records();
  EXPECT_TRUE(subject_->Work().ok());
  Poll(tracer_.get(), &checker);
  EXPECT_EQ(checker.trace_records(), before);
  EXPECT_THAT(checker.violations(), IsEmpty());
}

TEST_P(TracerConformance, PollTraceWaitsNoLongerThanTold) {
  auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(tracer_
                  ->PollTrace(
                      absl::Milliseconds(30), [](const TraceRecord&) {}, &dropped_)
                  .ok());
  auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, std::chrono::milliseconds(25));
  EXPECT_LT(took, std::chrono::seconds(5));
}

TEST_P(TracerConformance, EveryIoIsTraced) {
  if (!subject_->traces_every_io()) GTEST_SKIP() << "this recording holds some of the trace only";
  ASSERT_TRUE(tracer_->SetTrace(true).ok());
  ContractChecker checker(tracer_->info());
  Run(tracer_.get(), &checker);
  checker.CheckEnd();
  EXPECT_THAT(checker.violations(), IsEmpty());
  EXPECT_EQ(dropped_, 0u);
  EXPECT_EQ(checker.trace_bytes(), checker.row_bytes());
  EXPECT_EQ(checker.trace_records(), checker.row_ios());
}

TEST_P(TracerConformance, MayBePolledFromAnotherThread) {
  ASSERT_TRUE(tracer_->SetTrace(true).ok());
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> records = 0;
  std::thread poller([&] {
    uint64_t dropped = 0;
    while (!stop) {
      EXPECT_TRUE(tracer_
                      ->PollTrace(
                          absl::Milliseconds(5), [&](const TraceRecord&) { ++records; }, &dropped)
                      .ok());
    }
  });
  int windows = 0;
  for (int i = 0; i < 2 * kLiveWindows; ++i) {
    EXPECT_TRUE(subject_->Work().ok());
    EXPECT_TRUE(tracer_->SetTrace(i % 3 != 2).ok());
    if (!tracer_->Collect().ok()) break;
    ++windows;
    absl::SleepFor(absl::Milliseconds(10));
  }
  stop = true;
  poller.join();
  EXPECT_GT(windows, 1);
  EXPECT_GT(records.load(), 0u);
}

TEST_P(TracerConformance, StacksHaveNames) {
  agent::StackSymbols symbols(tracer_.get());
  ContractChecker checker(tracer_->info());
  EXPECT_GT(tracer_->SymbolGeneration(), 0u);
  uint64_t named = 0, frames = 0, from_syscall = 0;
  for (const Snapshot& s : Run(tracer_.get(), &checker)) {
    ASSERT_TRUE(symbols.Define(s.stacks).ok());
    for (const agent::StackDefinition& stack : s.stacks) {
      v1::Intent intent = BuildIntent(symbols.Frames(stack.id), "", "", "");
      for (const std::string& f : intent.frames()) {
        ++frames;
        if (f.find("0x") == std::string::npos) ++named;
        if (f.starts_with("sys_")) ++from_syscall;
      }
    }
  }
  if (!symbols.limitation().empty()) GTEST_SKIP() << symbols.limitation();
  EXPECT_GT(frames, 0u);
  EXPECT_GE(static_cast<double>(named), 0.99 * static_cast<double>(frames));
  EXPECT_GT(from_syscall, 0u);
}

TEST_P(TracerConformance, AnEndIsAnEnd) {
  if (live()) {
    // A live tracer goes on, at rest too.
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(tracer_->Collect().ok());
    return;
  }
  ContractChecker checker(tracer_->info());
  Run(tracer_.get(), &checker);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(absl::IsOutOfRange(tracer_->Collect().status()));
  EXPECT_TRUE(tracer_->SetTrace(true).ok());
  Poll(tracer_.get(), &checker);
  EXPECT_TRUE(tracer_->OpenKallsyms().ok());
}

TEST_P(TracerConformance, ARecordingOfItReplaysTheSame) {
  std::string path = absl::StrCat(::testing::TempDir(), "/conformance-", GetParam().name, ".rec");
  auto recorder = agent::CreateRecorder(std::move(tracer_), path);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  const agent::TracerInfo info = (*recorder)->info();
  ASSERT_TRUE((*recorder)->SetTrace(true).ok());
  ContractChecker recorded(info);
  agent::StackSymbols recorded_symbols(recorder->get());
  std::string recorded_text, recorded_frames, replayed_text, replayed_frames;
  auto name = [](agent::StackSymbols* symbols, const std::vector<Snapshot>& snapshots,
                 std::string* text) {
    for (const Snapshot& s : snapshots) {
      ASSERT_TRUE(symbols->Define(s.stacks).ok());
      for (const agent::StackDefinition& stack : s.stacks) {
        for (const SymbolizedFrame& f : symbols->Frames(stack.id)) {
          absl::StrAppend(text, f.module, ":", f.symbol, "+", f.offset, "\n");
        }
      }
    }
  };
  std::vector<Snapshot> snapshots = Run(recorder->get(), &recorded, &recorded_text);
  name(&recorded_symbols, snapshots, &recorded_frames);
  ASSERT_TRUE((*recorder)->Finish().ok());
  recorder->reset();

  auto replay = agent::CreateReplayTracer(path);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_EQ((*replay)->info().kernel_release, info.kernel_release);
  EXPECT_EQ((*replay)->info().reasons, info.reasons);
  ASSERT_TRUE((*replay)->SetTrace(true).ok());
  ContractChecker replayed((*replay)->info());
  agent::StackSymbols replayed_symbols(replay->get());
  snapshots.clear();
  for (;;) {
    Poll(replay->get(), &replayed, &replayed_text);
    auto snapshot = (*replay)->Collect();
    if (!snapshot.ok()) break;
    replayed.Check(*snapshot);
    replayed_text += SnapshotText(*snapshot);
    snapshots.push_back(*std::move(snapshot));
  }
  Poll(replay->get(), &replayed, &replayed_text);
  name(&replayed_symbols, snapshots, &replayed_frames);
  // Not EXPECT_EQ: a difference of a megabyte helps nobody.
  EXPECT_TRUE(replayed_text == recorded_text) << "see " << path;
  EXPECT_TRUE(replayed_frames == recorded_frames) << "see " << path;
  EXPECT_FALSE(recorded_frames.empty());
  EXPECT_EQ(replayed.trace_records(), recorded.trace_records());
  EXPECT_THAT(replayed.violations(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Tracers, TracerConformance, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fleetblame::testing
