// SPDX-License-Identifier: Apache-2.0
//
// Recorder and replay together: what goes in comes out, a damaged file gives what is whole, and a
// recording that poses as another host keeps the meaning of everything.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/intent/intent.h"
#include "node-agent/symbols/stack_symbols.h"
#include "node-agent/tracer/replay/recorder.h"
#include "node-agent/tracer/replay/recording.pb.h"
#include "node-agent/tracer/replay/recording_file.h"
#include "node-agent/tracer/replay/replay_tracer.h"
#include "node-agent/tracer/replay/scripted_tracer.h"
#include "node-agent/tracer/replay/snapshot_text.h"
#include "node-agent/tracer/replay/synthetic_script.h"

namespace fleetblame::agent {
namespace {

namespace rec = ::fleetblame::recording::v1;

std::string TempPath(const std::string& name) {
  return std::string(::testing::TempDir()) + "/replay-" + name;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const std::string& path, const std::string& data) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << data;
}

struct Taken {
  std::vector<Snapshot> snapshots;
  std::vector<TraceRecord> trace;
  uint64_t dropped = 0;
};

// Collects until the end, polling trace records before each window.
Taken TakeAll(Tracer* tracer, size_t most = 1000) {
  Taken taken;
  auto poll = [&] {
    EXPECT_TRUE(tracer
                    ->PollTrace(
                        absl::ZeroDuration(),
                        [&](const TraceRecord& r) { taken.trace.push_back(r); }, &taken.dropped)
                    .ok());
  };
  EXPECT_TRUE(tracer->SetTrace(true).ok());
  while (taken.snapshots.size() < most) {
    poll();
    auto s = tracer->Collect();
    if (!s.ok()) {
      EXPECT_TRUE(absl::IsOutOfRange(s.status())) << s.status();
      break;
    }
    taken.snapshots.push_back(*std::move(s));
  }
  poll();
  return taken;
}

std::string Text(const Taken& taken) {
  std::string text;
  for (const Snapshot& s : taken.snapshots) text += SnapshotText(s);
  for (const TraceRecord& r : taken.trace) text += TraceRecordText(r);
  return text;
}

// Records a script to a file and returns what the recorded tracer said.
Taken Record(TracerScript script, const std::string& path, const RecorderOptions& options = {}) {
  auto recorder =
      CreateRecorder(std::make_unique<ScriptedTracer>(std::move(script)), path, options);
  EXPECT_TRUE(recorder.ok()) << recorder.status();
  Taken taken = TakeAll(recorder->get());
  (void)(*recorder)->Finish();
  return taken;
}

std::unique_ptr<Tracer> Replay(const std::string& path, const ReplayOptions& options = {}) {
  auto tracer = CreateReplayTracer(path, options);
  EXPECT_TRUE(tracer.ok()) << tracer.status();
  return tracer.ok() ? *std::move(tracer) : nullptr;
}

// Sum of bytes by what the rows mean on any host: intent ids, command, device.
using Meaning = std::map<std::string, uint64_t>;

Meaning MeaningOf(Tracer* tracer, std::set<std::string>* raw_frames = nullptr) {
  StackSymbols symbols(tracer);
  Meaning meaning;
  std::map<ActorId, std::string> comms = {{0, "-"}};
  for (;;) {
    auto s = tracer->Collect();
    if (!s.ok()) break;
    EXPECT_TRUE(symbols.Define(s->stacks).ok());
    for (const ActorDefinition& a : s->actors) comms[a.id] = a.comm;
    for (const Row& row : s->rows) {
      std::string key = comms.at(row.key.dirtier_actor);
      for (StackId id : {row.key.dirtier_stack, row.key.issuer_stack}) {
        std::vector<SymbolizedFrame> frames = symbols.Frames(id);
        v1::Intent intent = BuildIntent(frames, tracer->info().reasons.at(row.key.reason), "", "");
        EXPECT_FALSE(intent.unsymbolized());
        absl::StrAppend(&key, " ", IntentIdHex(intent.intent_id()));
        if (raw_frames == nullptr) continue;
        for (const SymbolizedFrame& f : frames) raw_frames->insert(f.module + ":" + f.symbol);
      }
      meaning[key] += row.values.bytes;
    }
  }
  return meaning;
}

TEST(Replay, GivesBackExactlyWhatWasRecorded) {
  std::string path = TempPath("exact");
  TracerScript script = MakeSyntheticScript();
  TracerInfo info = script.info;
  Taken recorded = Record(std::move(script), path);
  ASSERT_EQ(recorded.snapshots.size(), 5u);
  ASSERT_EQ(recorded.trace.size(), 100u);
  auto tracer = Replay(path);
  EXPECT_EQ(tracer->info().kind, "replay");
  EXPECT_EQ(tracer->info().kernel_release, info.kernel_release);
  EXPECT_EQ(tracer->info().vmlinux_build_id, info.vmlinux_build_id);
  EXPECT_EQ(tracer->info().reasons, info.reasons);
  EXPECT_TRUE(tracer->info().limitations.empty());
  Taken replayed = TakeAll(tracer.get());
  EXPECT_EQ(Text(replayed), Text(recorded));
  EXPECT_TRUE(absl::IsOutOfRange(tracer->Collect().status()));
}

TEST(Replay, TextThatIsNotUtf8Survives) {
  TracerScript script = MakeSyntheticScript({.windows = 1});
  script.snapshots[0].actors[0].comm = "\xff\xfe\x80";
  Snapshot original = script.snapshots[0];
  std::string path = TempPath("bytes");
  Record(std::move(script), path);
  auto s = Replay(path)->Collect();
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(SnapshotText(*s), SnapshotText(original));
}

TEST(Replay, TagWaitsAreRecorded) {
  TracerScript script = MakeSyntheticScript({.windows = 2});
  v1::TagWaits& waits = script.snapshots[0].tag_waits.emplace();
  v1::TagWaitRow* row = waits.add_rows();
  row->set_device(PackDevice({8, 0}));
  row->set_intent(script.snapshots[0].stacks[0].id);
  row->set_actor(script.snapshots[0].actors[0].id);
  row->set_waits(3);
  waits.add_holders()->set_tags_sum(7);
  waits.set_source(v1::TAG_WAIT_SOURCE_TRACEPOINT);
  const Snapshot original = script.snapshots[0];
  const std::string path = TempPath("tags");
  Record(std::move(script), path);
  auto tracer = Replay(path);
  auto s = tracer->Collect();
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(SnapshotText(*s), SnapshotText(original));
  ASSERT_TRUE(s->tag_waits.has_value());
  EXPECT_EQ(s->tag_waits->source(), v1::TAG_WAIT_SOURCE_TRACEPOINT);
  auto next = tracer->Collect();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->tag_waits.has_value());
  // Ids of another pose go along with the definitions.
  auto posed = Replay(path, {.seed = 5})->Collect();
  ASSERT_TRUE(posed.ok());
  EXPECT_EQ(posed->tag_waits->rows(0).intent(), posed->stacks[0].id);
  EXPECT_EQ(posed->tag_waits->rows(0).actor(), posed->actors[0].id);
}

TEST(Replay, TheCopyOfTheSymbolsNamesEveryFrameAsTheOriginalDoes) {
  // Addresses of all kinds: in functions, in the holes between, at the edges, nowhere.
  std::mt19937_64 random(4);
  TracerScript script = MakeSyntheticScript({.windows = 8});
  for (Snapshot& s : script.snapshots) {
    for (StackId id = 5000; id < 5020; ++id) {
      StackDefinition stack{id, {}};
      for (int i = 0; i < 12; ++i) {
        static constexpr uint64_t kBases[] = {0xffffffff81000000, 0xffffffffa0000000,
                                              0xffffffff80ff0000, 0};
        stack.addresses.push_back(kBases[random() % 4] + random() % 0x30000);
      }
      s.stacks.push_back(stack);
    }
  }
  ScriptedTracer original(script);
  StackSymbols expected(&original);
  std::string path = TempPath("symbols");
  Record(script, path);
  auto tracer = Replay(path);
  StackSymbols got(tracer.get());
  for (const Snapshot& s : script.snapshots) {
    ASSERT_TRUE(expected.Define(s.stacks).ok());
    auto played = tracer->Collect();
    ASSERT_TRUE(played.ok());
    ASSERT_TRUE(got.Define(played->stacks).ok());
    for (const StackDefinition& stack : s.stacks) {
      EXPECT_EQ(got.Frames(stack.id), expected.Frames(stack.id));
    }
  }
}

TEST(Replay, AModuleThatComesAndGoesIsNamedAtItsTime) {
  TracerScript script;
  script.kallsyms = "ffffffff81000000 T vfs_write\nffffffff81001000 T _etext\n";
  script.symbol_generation = 1;
  auto scripted = std::make_unique<ScriptedTracer>(script);
  ScriptedTracer* tracer = scripted.get();
  std::string path = TempPath("modules");
  {
    auto recorder = CreateRecorder(std::move(scripted), path);
    ASSERT_TRUE(recorder.ok());
    const char* const modules[] = {"ext4", "xfs", "btrfs"};
    for (uint64_t i = 0; i < 3; ++i) {
      Snapshot s;
      s.start_boot_ns = i;
      s.end_boot_ns = i + 1;
      s.stacks = {{static_cast<StackId>(10 + i), {0xffffffffc0000010, 0xffffffff81000010}}};
      tracer->script().snapshots.push_back(s);
      tracer->script().kallsyms = absl::StrCat(script.kallsyms, "ffffffffc0000000 t ", modules[i],
                                               "_write\t[", modules[i], "]\n");
      ++tracer->script().symbol_generation;
      ASSERT_TRUE((*recorder)->Collect().ok());
    }
  }
  for (bool loop : {false, true}) {
    auto replay = Replay(path, {.loop = loop});
    StackSymbols symbols(replay.get());
    for (int lap = 0; lap < (loop ? 3 : 1); ++lap) {
      for (const char* name : {"ext4_write", "xfs_write", "btrfs_write"}) {
        auto s = replay->Collect();
        ASSERT_TRUE(s.ok());
        ASSERT_TRUE(symbols.Define(s->stacks).ok());
        EXPECT_EQ(symbols.Frames(s->stacks[0].id)[0].symbol, name);
      }
    }
  }
}

TEST(Replay, HiddenSymbolsStayHidden) {
  TracerScript script = MakeSyntheticScript({.windows = 1});
  script.kallsyms_status = absl::PermissionDeniedError("open /proc/kallsyms: Permission denied");
  std::string path = TempPath("hidden");
  Record(std::move(script), path);
  auto tracer = Replay(path);
  StackSymbols symbols(tracer.get());
  auto s = tracer->Collect();
  ASSERT_TRUE(s.ok());
  EXPECT_TRUE(symbols.Define(s->stacks).ok());
  EXPECT_FALSE(symbols.limitation().empty());
  EXPECT_TRUE(symbols.Frames(s->stacks[0].id)[0].symbol.empty());
}

TEST(Pose, AnotherHostMeansTheSame) {
  std::string path = TempPath("pose");
  Record(MakeSyntheticScript(), path);
  std::set<std::string> plain_frames;
  Meaning plain = MeaningOf(Replay(path).get(), &plain_frames);
  EXPECT_GT(plain.size(), 10u);
  std::vector<ReplayOptions> hosts(5);
  hosts[0].kaslr_shift = 0x1f400000;
  hosts[1].kaslr_shift = -0x1000000;
  hosts[1].symbol_rewrites = {{"^(ext4|xfs)_.*", "\\0.isra.0"}, {"^vfs_write$", "\\0.constprop.1"}};
  hosts[2].module_rewrites = {{"^(ext4|jbd2)_|^kjournald2$", "ext4"}, {"^xfs_", "xfs"}};
  hosts[3].seed = 77;
  hosts[4] = hosts[1];
  hosts[4].module_rewrites = hosts[2].module_rewrites;
  hosts[4].seed = 12345;
  hosts[4].kaslr_shift = 0x200000;
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::set<std::string> frames;
    EXPECT_EQ(MeaningOf(Replay(path, hosts[i]).get(), &frames), plain) << "host " << i;
    if (i != 0 && i != 3) {
      EXPECT_NE(frames, plain_frames) << "host " << i;
    }
  }
  std::set<std::string> frames;
  MeaningOf(Replay(path, hosts[4]).get(), &frames);
  EXPECT_TRUE(frames.contains("ext4:ext4_da_write_end.isra.0"));
  EXPECT_TRUE(frames.contains(":vfs_write.constprop.1"));
}

TEST(Pose, ASeedRenumbersIdsOneToOne) {
  std::string path = TempPath("seed");
  Record(MakeSyntheticScript(), path);
  auto plain = Replay(path)->Collect();
  auto posed = Replay(path, {.seed = 5})->Collect();
  ASSERT_TRUE(plain.ok() && posed.ok());
  EXPECT_NE(SnapshotText(*plain), SnapshotText(*posed));
  std::map<StackId, StackId> stacks;
  std::set<StackId> images;
  for (size_t i = 0; i < plain->rows.size(); ++i) {
    StackId from = plain->rows[i].key.issuer_stack, to = posed->rows[i].key.issuer_stack;
    EXPECT_EQ(stacks.try_emplace(from, to).first->second, to);
  }
  for (auto [from, to] : stacks) EXPECT_TRUE(images.insert(to).second);
  // The special ids keep their meaning.
  if (stacks.contains(kLostStack)) {
    EXPECT_EQ(stacks[kLostStack], kLostStack);
  }
}

TEST(Pose, LoadKeepsTheBooksBalanced) {
  std::string path = TempPath("load");
  Record(MakeSyntheticScript(), path);
  auto plain = Replay(path)->Collect();
  auto loaded = Replay(path, {.load_factor = 7})->Collect();
  ASSERT_TRUE(plain.ok() && loaded.ok());
  for (size_t i = 0; i < plain->rows.size(); ++i) {
    const RowValues& a = plain->rows[i].values;
    const RowValues& b = loaded->rows[i].values;
    EXPECT_EQ(b.bytes, 7 * a.bytes);
    EXPECT_EQ(b.wait.total(), b.ios);
    EXPECT_EQ(b.io.total(), 7 * a.io.total());
  }
  for (size_t i = 0; i < plain->books.size(); ++i) {
    const Books& b = loaded->books[i];
    EXPECT_EQ(b.recorded_bytes + b.lost_bytes, b.kernel_bytes);
    EXPECT_EQ(b.kernel_bytes, 7 * plain->books[i].kernel_bytes);
  }
}

TEST(Pose, NonsenseIsRefusedWithAReason) {
  std::string path = TempPath("nonsense");
  Record(MakeSyntheticScript({.windows = 1}), path);
  const std::pair<ReplayOptions, const char*> cases[] = {
      {{.speed = -1}, "speed"},
      {{.speed = std::numeric_limits<double>::quiet_NaN()}, "speed"},
      {{.speed = std::numeric_limits<double>::infinity()}, "speed"},
      {{.symbol_rewrites = {{"(", ""}}}, "malformed"},
      {{.symbol_rewrites = {{"a", "\\7"}}}, "malformed"},
      {{.module_rewrites = {{"[", "ext4"}}}, "malformed"},
      {{.load_factor = 0}, "load factor"},
  };
  for (const auto& [options, word] : cases) {
    absl::Status status = CreateReplayTracer(path, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << word << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << status;
  }
}

TEST(ReplayTime, LoopsWithTimesGoingOn) {
  std::string path = TempPath("loop");
  Record(MakeSyntheticScript({.windows = 3, .trace_records = 9}), path);
  auto tracer = Replay(path, {.loop = true});
  Taken taken = TakeAll(tracer.get(), 10);
  ASSERT_EQ(taken.snapshots.size(), 10u);
  for (size_t i = 1; i < taken.snapshots.size(); ++i) {
    EXPECT_EQ(taken.snapshots[i].start_boot_ns, taken.snapshots[i - 1].end_boot_ns);
  }
  EXPECT_EQ(taken.snapshots[3].rows.size(), taken.snapshots[0].rows.size());
  EXPECT_GE(taken.trace.size(), 27u);
  for (size_t i = 1; i < taken.trace.size(); ++i) {
    EXPECT_GE(taken.trace[i].complete_boot_ns, taken.trace[i - 1].complete_boot_ns);
  }
}

TEST(ReplayTime, AnEmptyRecordingEndsEvenWhenLooped) {
  std::string path = TempPath("empty");
  Record(MakeSyntheticScript({.windows = 0, .trace_records = 0}), path);
  EXPECT_TRUE(absl::IsOutOfRange(Replay(path, {.loop = true})->Collect().status()));
}

TEST(ReplayTime, LiesWhereItIsTold) {
  std::string path = TempPath("clock");
  Record(MakeSyntheticScript({.windows = 4, .window_ns = 1'000'000}), path);
  auto boot_now = [] {
    timespec t{};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  };
  uint64_t before = boot_now();
  auto start_now = Replay(path, {.clock = ReplayOptions::Clock::kStartNow});
  auto end_now = Replay(path, {.clock = ReplayOptions::Clock::kEndNow});
  uint64_t after = boot_now();
  uint64_t start = TakeAll(start_now.get()).snapshots.front().start_boot_ns;
  EXPECT_GE(start, before);
  EXPECT_LE(start, after);
  uint64_t end = TakeAll(end_now.get()).snapshots.back().end_boot_ns;
  EXPECT_GE(end, before);
  EXPECT_LE(end, after);

  std::string century = TempPath("century");
  Record(MakeSyntheticScript(
             {.windows = 2, .trace_records = 0, .window_ns = 1'600'000'000'000'000'000}),
         century);
  absl::Status status =
      CreateReplayTracer(century, {.clock = ReplayOptions::Clock::kEndNow}).status();
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
}

TEST(ReplayTime, RunsAtTheSpeedItIsTold) {
  std::string path = TempPath("speed");
  // Four windows of 100 ms each, at double speed: 200 ms.
  Record(MakeSyntheticScript({.windows = 4, .trace_records = 40, .window_ns = 100'000'000}), path);
  absl::Time begin = absl::Now();
  auto tracer = Replay(path, {.speed = 2});
  ASSERT_TRUE(tracer->SetTrace(true).ok());
  std::vector<absl::Duration> trace_at;
  std::thread poller([&] {
    uint64_t dropped = 0;
    while (trace_at.size() < 40 && absl::Now() < begin + absl::Seconds(20)) {
      EXPECT_TRUE(tracer
                      ->PollTrace(
                          absl::Milliseconds(50),
                          [&](const TraceRecord&) { trace_at.push_back(absl::Now() - begin); },
                          &dropped)
                      .ok());
    }
  });
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(tracer->Collect().ok());
    EXPECT_GE(absl::Now() - begin, absl::Milliseconds(50 * i - 1));
  }
  EXPECT_TRUE(absl::IsOutOfRange(tracer->Collect().status()));
  poller.join();
  // The recorder polled all of them before the first window, but each comes at its own time.
  ASSERT_EQ(trace_at.size(), 40u);
  for (size_t i = 0; i < trace_at.size(); ++i) {
    EXPECT_GE(trace_at[i], absl::Milliseconds(5 * static_cast<int>(i) - 1));
  }
}

TEST(ReplayTrace, NothingComesWhileItIsOff) {
  std::string path = TempPath("trace-off");
  Record(MakeSyntheticScript(), path);
  auto tracer = Replay(path);
  uint64_t dropped = 0;
  int records = 0;
  auto sink = [&](const TraceRecord&) { ++records; };
  absl::Time begin = absl::Now();
  ASSERT_TRUE(tracer->PollTrace(absl::Milliseconds(20), sink, &dropped).ok());
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(19));
  while (tracer->Collect().ok()) {
    ASSERT_TRUE(tracer->PollTrace(absl::ZeroDuration(), sink, &dropped).ok());
  }
  EXPECT_EQ(records, 0);
}

TEST(ReplayTrace, DroppedRecordsStayCounted) {
  TracerScript script = MakeSyntheticScript({.windows = 2});
  script.trace_dropped = 17;
  std::string path = TempPath("dropped");
  EXPECT_EQ(Record(std::move(script), path).dropped, 17u);
  EXPECT_EQ(TakeAll(Replay(path).get()).dropped, 17u);
}

TEST(ReplayDevices, SelectionAppliesToRowsBooksAndTrace) {
  std::string path = TempPath("devices");
  Record(MakeSyntheticScript(), path);
  auto tracer = Replay(path);
  EXPECT_TRUE(absl::IsNotFound(tracer->SetDevices({{"4095:77"}})));
  ASSERT_TRUE(tracer->SetDevices({{"259:0"}}).ok());
  Taken taken = TakeAll(tracer.get());
  size_t rows = 0;
  for (const Snapshot& s : taken.snapshots) {
    for (const Row& r : s.rows) EXPECT_EQ(r.key.device, (DeviceNumber{259, 0}));
    for (const Books& b : s.books) EXPECT_EQ(b.device, (DeviceNumber{259, 0}));
    rows += s.rows.size();
  }
  for (const TraceRecord& r : taken.trace) EXPECT_EQ(r.device, (DeviceNumber{259, 0}));
  EXPECT_GT(rows, 0u);
  EXPECT_GT(taken.trace.size(), 0u);
}

TEST(ReplayDamage, ATornTailIsPlayedUpToTheTear) {
  std::string path = TempPath("torn");
  Taken recorded = Record(MakeSyntheticScript({.windows = 6, .rows_per_window = 5}), path);
  std::string whole = ReadFile(path);
  size_t most = 0;
  for (size_t size = kRecordingHeaderBytes; size < whole.size(); size += 7) {
    WriteFile(path, whole.substr(0, size));
    auto tracer = CreateReplayTracer(path);
    if (!tracer.ok()) {
      EXPECT_EQ(most, 0u);
      EXPECT_TRUE(absl::IsDataLoss(tracer.status())) << tracer.status();
      continue;
    }
    ASSERT_EQ((*tracer)->info().limitations.size(), 1u);
    EXPECT_TRUE(absl::StrContains((*tracer)->info().limitations[0], "incomplete"));
    Taken taken = TakeAll(tracer->get());
    ASSERT_GE(taken.snapshots.size(), most);
    most = taken.snapshots.size();
    for (size_t i = 0; i < taken.snapshots.size(); ++i) {
      ASSERT_EQ(SnapshotText(taken.snapshots[i]), SnapshotText(recorded.snapshots[i]));
    }
  }
  EXPECT_EQ(most, 6u);
}

TEST(ReplayDamage, DamageInTheMiddleEndsThePlay) {
  std::string path = TempPath("middle");
  Taken recorded = Record(MakeSyntheticScript({.windows = 20, .rows_per_window = 20}), path);
  std::string data = ReadFile(path);
  data[data.size() / 2] = static_cast<char>(data[data.size() / 2] ^ 0x10);
  WriteFile(path, data);
  auto tracer = Replay(path);
  Taken taken = TakeAll(tracer.get());
  EXPECT_GT(taken.snapshots.size(), 3u);
  EXPECT_LT(taken.snapshots.size(), 20u);
  EXPECT_TRUE(absl::StrContains(tracer->info().limitations.at(0), "damaged"));
}

TEST(ReplayDamage, AFileThatShrinksWhilePlayedIsAnError) {
  std::string path = TempPath("shrinks");
  Record(MakeSyntheticScript({.windows = 10}), path);
  auto tracer = Replay(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = tracer->Collect().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

// Frames that are whole but hold nonsense: mutated messages behind right checksums.
TEST(ReplayFuzz, SurvivesHostileFrames) {
  std::string seed_path = TempPath("fuzz-seed");
  Record(MakeSyntheticScript({.windows = 3, .rows_per_window = 4, .trace_records = 5}), seed_path);
  std::vector<RecordingFrame> frames;
  {
    auto reader = RecordingReader::Open(seed_path);
    ASSERT_TRUE(reader.ok());
    RecordingFrame frame;
    while ((*reader)->Next(&frame).ok()) frames.push_back(frame);
  }
  std::mt19937_64 random(21);
  std::string path = TempPath("fuzz");
  int played = 0;
  for (int round = 0; round < 1500; ++round) {
    {
      auto writer = RecordingWriter::Create(path);
      ASSERT_TRUE(writer.ok());
      for (size_t i = 0; i < frames.size(); ++i) {
        std::string payload = frames[i].payload;
        uint32_t type = frames[i].type;
        if (i > 0 && random() % 4 == 0) {
          for (uint64_t n = 1 + random() % 4; n > 0 && !payload.empty(); --n) {
            payload[random() % payload.size()] = static_cast<char>(random());
          }
          if (random() % 8 == 0) type = static_cast<uint32_t>(random() % 9);
          if (random() % 8 == 0) payload.resize(random() % (payload.size() + 1));
        }
        ASSERT_TRUE((*writer)->Append(static_cast<FrameType>(type), payload).ok());
      }
    }
    auto tracer = CreateReplayTracer(path, {.kaslr_shift = 0x1000, .seed = 3});
    if (!tracer.ok()) continue;
    StackSymbols symbols(tracer->get());
    Taken taken = TakeAll(tracer->get());
    for (const Snapshot& s : taken.snapshots) (void)symbols.Define(s.stacks);
    played += static_cast<int>(taken.snapshots.size());
  }
  EXPECT_GT(played, 1500);
}

TEST(Recorder, StopsAtItsLimitAndTracingGoesOn) {
  std::string path = TempPath("limit");
  auto recorder =
      CreateRecorder(std::make_unique<ScriptedTracer>(MakeSyntheticScript({.windows = 50})), path,
                     {.max_bytes = 20000});
  ASSERT_TRUE(recorder.ok());
  EXPECT_EQ(TakeAll(recorder->get()).snapshots.size(), 50u);
  EXPECT_TRUE(absl::IsResourceExhausted((*recorder)->recording_status()))
      << (*recorder)->recording_status();
  recorder->reset();
  EXPECT_LE(std::filesystem::file_size(path), 20000u);
  auto tracer = Replay(path);
  EXPECT_TRUE(absl::StrContains(tracer->info().limitations.at(0), "size limit"));
  size_t played = TakeAll(tracer.get()).snapshots.size();
  EXPECT_GT(played, 3u);
  EXPECT_LT(played, 50u);
}

TEST(Recorder, AnImpossiblePlaceIsRefusedAtOnce) {
  for (const char* path : {"/no/such/folder/x", "/dev/full"}) {
    auto recorder = CreateRecorder(std::make_unique<ScriptedTracer>(MakeSyntheticScript()), path);
    EXPECT_FALSE(recorder.ok());
    EXPECT_TRUE(absl::StrContains(recorder.status().message(), path)) << recorder.status();
  }
}

TEST(Recorder, KilledWithoutFinishLeavesAPlayableFile) {
  std::string path = TempPath("killed"), copy = TempPath("killed-copy");
  auto recorder = CreateRecorder(std::make_unique<ScriptedTracer>(MakeSyntheticScript()), path);
  ASSERT_TRUE(recorder.ok());
  ASSERT_TRUE((*recorder)->Collect().ok());
  ASSERT_TRUE((*recorder)->Collect().ok());
  WriteFile(copy, ReadFile(path));  // as the file stood at that moment
  EXPECT_EQ(TakeAll(Replay(copy).get()).snapshots.size(), 2u);
}

}  // namespace
}  // namespace fleetblame::agent
