// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/rocks_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/store/testing/store_model.h"

namespace fleetblame::aggregator {
namespace {

using Outcome = AppendResult::Outcome;

constexpr uint64_t kMinuteNs = 60 * kTestSecondNs;
constexpr uint64_t kHourNs = 3600 * kTestSecondNs;
constexpr uint64_t kDayNs = 24 * kHourNs;
constexpr uint64_t kForeverNs = 3600 * kTestSecondNs;  // budget that never runs out

class RocksStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    static int counter = 0;
    options_.path = absl::StrCat(testing::TempDir(), "/rocks_store_", getpid(), "_", ++counter);
    std::filesystem::remove_all(options_.path);
    options_.min_free_bytes = 0;
    options_.rollup_settle_ns = {};
    options_.write_buffer_bytes = 16 << 20;
    options_.block_cache_bytes = 16 << 20;
    Open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(options_.path);
  }

  void Open() {
    store_.reset();
    absl::StatusOr<std::unique_ptr<Store>> store = OpenRocksStore(options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  ModelAgent NewAgent(int index) {
    ModelAgent agent(index, static_cast<uint64_t>(index) + 77);
    absl::StatusOr<HostNumber> number = store_->UpsertHost(agent.Record());
    EXPECT_TRUE(number.ok()) << number.status();
    agent.number = number.value_or(0);
    hosts_.insert(agent.number);
    return agent;
  }

  AppendResult Append(const ModelAgent& agent, const ModelAgent::Outgoing& out) {
    IncomingBatch in{agent.number, &out.batch, &out.rows};
    absl::StatusOr<std::vector<AppendResult>> results = store_->Append({&in, 1});
    EXPECT_TRUE(results.ok()) << results.status();
    if (!results.ok()) return {.outcome = Outcome::kInvalid};
    EXPECT_EQ(results->size(), 1u);
    return results->front();
  }

  // Appends and expects it to be taken.
  void Take(ModelAgent* agent, uint64_t end_unix_ns, int rows = 5,
            uint64_t length_ns = 10 * kTestSecondNs) {
    ModelAgent::Outgoing out = agent->Next(end_unix_ns, length_ns, rows);
    AppendResult result = Append(*agent, out);
    ASSERT_EQ(result.outcome, Outcome::kDurable) << result.error;
    EXPECT_EQ(result.durable_seq, agent->seq);
    model_.Add(*agent, out);
  }

  void Upkeep(uint64_t now_unix_ns) {
    absl::Status status = store_->Upkeep(now_unix_ns, kForeverNs);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<HostNumber> AllHosts() const { return {hosts_.begin(), hosts_.end()}; }

  // Compares every kind of scan with the model. Files are compared while none was folded.
  void ExpectAgrees(const ScanRange& range, bool files = true) {
    std::unique_ptr<ReadView> view = store_->NewReadView();
    KeyDetail detail = files ? KeyDetail::kAll : KeyDetail::kNoFiles;
    RowSums want = model_.Rows(range.start_unix_ns, range.end_unix_ns, detail);
    RowSums got = ReadHosts(*view, AllHosts(), range, detail);
    EXPECT_TRUE(got == want) << "hosts: " << Difference(got, want);
    want = model_.Rows(range.start_unix_ns, range.end_unix_ns, KeyDetail::kFleet);
    got = ReadFleet(*view, range);
    EXPECT_TRUE(got == want) << "fleet: " << Difference(got, want);
    for (uint32_t identity : {1u, 4u}) {
      std::string hex = absl::StrCat("a", absl::Hex(identity));
      absl::StatusOr<std::vector<IntentNumber>> found = view->FindIntents(hex, 10);
      ASSERT_TRUE(found.ok());
      if (found->empty()) continue;
      ASSERT_EQ(found->size(), 1u);
      want = model_.RowsOfIntent(identity, range.start_unix_ns, range.end_unix_ns, detail);
      got = ReadIntents(*view, *found, range, detail);
      EXPECT_TRUE(got == want) << "intent: " << Difference(got, want);
    }
    uint64_t want_loss = model_.Loss(range.start_unix_ns, range.end_unix_ns);
    auto losses = view->Losses(AllHosts(), range);
    ASSERT_TRUE(losses.ok()) << losses.status();
    EXPECT_EQ((*losses)["table_full"], want_loss);
    EXPECT_TRUE(ReadTagWaits(*view, AllHosts(), range) ==
                model_.TagWaits(range.start_unix_ns, range.end_unix_ns))
        << "tag waits differ";
    auto coverage = view->Coverage(AllHosts(), range);
    ASSERT_TRUE(coverage.ok());
    std::map<HostNumber, uint64_t> recorded;
    for (const StoredCoverage& c : *coverage) recorded[c.host] += c.sample.recorded_bytes();
    for (const HostRecord& host : view->Hosts()) {
      int index = std::stoi(host.labels.at("index"));
      EXPECT_EQ(recorded[host.number],
                model_.RecordedBytes(index, range.start_unix_ns, range.end_unix_ns));
    }
  }

  // Levels at which blocks came when all hosts are scanned.
  std::set<Level> LevelsUsed(const ScanRange& range) {
    std::set<Level> levels;
    EXPECT_TRUE(store_->NewReadView()
                    ->ScanHosts(AllHosts(), range,
                                [&](const ScannedBlock& block) {
                                  levels.insert(block.level);
                                  return true;
                                })
                    .ok());
    return levels;
  }

  RocksStoreOptions options_;
  std::unique_ptr<Store> store_;
  StoreModel model_;
  std::set<HostNumber> hosts_;
};

constexpr ScanRange kEverything{0, UINT64_MAX, Level::k1d};

TEST_F(RocksStoreTest, RawRowsComeBackAsTheyWere) {
  ModelAgent a = NewAgent(1);
  ModelAgent b = NewAgent(2);
  for (int i = 1; i <= 20; ++i) {
    Take(&a, kTestStartUnixNs + static_cast<uint64_t>(i) * 10 * kTestSecondNs, 7);
    if (i % 2 == 0) Take(&b, kTestStartUnixNs + static_cast<uint64_t>(i) * 10 * kTestSecondNs, 3);
  }
  ExpectAgrees(kEverything);
  for (uint64_t from = 0; from < 210; from += 37) {
    ExpectAgrees({kTestStartUnixNs + from * kTestSecondNs,
                  kTestStartUnixNs + (from + 55) * kTestSecondNs, Level::k1d});
  }
  Open();
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, DuplicateAndOutOfOrderBatchesChangeNothing) {
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing first = a.Next(kTestStartUnixNs + 10 * kTestSecondNs, 10 * kTestSecondNs, 5);
  ModelAgent::Outgoing second =
      a.Next(kTestStartUnixNs + 20 * kTestSecondNs, 10 * kTestSecondNs, 5);
  EXPECT_EQ(Append(a, second).outcome, Outcome::kOutOfOrder);
  EXPECT_EQ(Append(a, first).outcome, Outcome::kDurable);
  model_.Add(a, first);
  AppendResult again = Append(a, first);
  EXPECT_EQ(again.outcome, Outcome::kDuplicate);
  EXPECT_EQ(again.durable_seq, 1u);
  EXPECT_EQ(Append(a, second).outcome, Outcome::kDurable);
  model_.Add(a, second);
  EXPECT_EQ(store_->DurableSeq(a.number, a.spool_epoch()).value(), 2u);
  EXPECT_EQ(store_->DurableSeq(a.number, a.spool_epoch() + 1).value(), 0u);
  ExpectAgrees(kEverything);
  Open();
  EXPECT_EQ(Append(a, second).outcome, Outcome::kDuplicate);
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, OneAppendTakesManyBatchesOfAHostInOrder) {
  ModelAgent a = NewAgent(1);
  std::vector<ModelAgent::Outgoing> outs;
  for (uint64_t i = 1; i <= 5; ++i) {
    outs.push_back(a.Next(kTestStartUnixNs + i * 10 * kTestSecondNs, 10 * kTestSecondNs, 4));
  }
  // The third is malformed: what follows it must wait.
  outs[2].batch.mutable_window()->set_end_boot_ns(0);
  std::vector<IncomingBatch> in;
  for (const auto& out : outs) in.push_back({a.number, &out.batch, &out.rows});
  auto results = store_->Append(in);
  ASSERT_TRUE(results.ok()) << results.status();
  std::vector<Outcome> outcomes;
  for (const AppendResult& r : *results) outcomes.push_back(r.outcome);
  EXPECT_EQ(outcomes, (std::vector<Outcome>{Outcome::kDurable, Outcome::kDurable, Outcome::kInvalid,
                                            Outcome::kOutOfOrder, Outcome::kOutOfOrder}));
  model_.Add(a, outs[0]);
  model_.Add(a, outs[1]);
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, MissingDefinitionsAreAskedForAndThenTaken) {
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing out = a.Next(kTestStartUnixNs + 10 * kTestSecondNs, 10 * kTestSecondNs, 60);
  out.batch.clear_definitions();
  AppendResult result = Append(a, out);
  ASSERT_EQ(result.outcome, Outcome::kNeedDefinitions);
  EXPECT_EQ(result.need.dictionary_id(), a.dictionary_id());
  EXPECT_EQ(result.need.intents_size(), 6);
  EXPECT_EQ(result.need.devices_size(), 2);
  EXPECT_EQ(store_->DurableSeq(a.number, a.spool_epoch()).value(), 0u);
  ASSERT_TRUE(store_->AddDefinitions(a.number, a.AllDefinitions()).ok());
  Open();
  EXPECT_EQ(Append(a, out).outcome, Outcome::kDurable);
  model_.Add(a, out);
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, RollupsAnswerAsRawDoes) {
  options_.retention_ns.fill(365 * kDayNs);
  Open();
  ModelAgent a = NewAgent(1);
  ModelAgent b = NewAgent(2);
  // A bit more than a day, sparse.
  for (uint64_t minute = 1; minute < 25 * 60; minute += 7) {
    Take(&a, kTestStartUnixNs + minute * kMinuteNs, 4);
    if (minute % 2 == 0) Take(&b, kTestStartUnixNs + minute * kMinuteNs + 5 * kTestSecondNs, 2);
  }
  Upkeep(kTestStartUnixNs + 25 * kHourNs);
  ExpectAgrees(kEverything);
  const uint64_t start = kTestStartUnixNs;
  EXPECT_EQ(LevelsUsed({start, start + kDayNs, Level::k1d}), std::set<Level>{Level::k1d});
  EXPECT_EQ(LevelsUsed({start, start + kDayNs, Level::k6h}), std::set<Level>{Level::k6h});
  EXPECT_EQ(LevelsUsed({start, start + kDayNs, Level::k1h}), std::set<Level>{Level::k1h});
  EXPECT_EQ(LevelsUsed({start, start + 3 * kHourNs, Level::k10m}), std::set<Level>{Level::k10m});
  EXPECT_EQ(LevelsUsed({start, start + kHourNs, Level::k1m}), std::set<Level>{Level::k1m});
  EXPECT_EQ(LevelsUsed({start, start + kHourNs, Level::kRaw}), std::set<Level>{Level::kRaw});
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) {
    uint64_t from = start + random() % (25 * 3600) * kTestSecondNs;
    uint64_t to = from + 1 + random() % (26 * 3600) * kTestSecondNs;
    ExpectAgrees({from, to, static_cast<Level>(random() % kLevels)});
  }
}

TEST_F(RocksStoreTest, SeveralIntentsAtOnceYieldEachRowOnce) {
  ModelAgent a = NewAgent(1);
  for (uint64_t minute = 1; minute <= 120; minute += 3) {
    Take(&a, kTestStartUnixNs + minute * kMinuteNs, 20);
  }
  for (bool rolled : {false, true}) {
    if (rolled) Upkeep(kTestStartUnixNs + 25 * kHourNs);
    std::unique_ptr<ReadView> view = store_->NewReadView();
    std::vector<IntentNumber> all;
    RowSums want;
    for (uint32_t identity = 1; identity <= 6; ++identity) {
      all.push_back(view->FindIntents(absl::StrCat("a", identity), 2).value().at(0));
    }
    std::sort(all.begin(), all.end());
    RowSums got = ReadIntents(*view, all, kEverything, KeyDetail::kAll);
    for (auto& [key, sum] : model_.Rows(0, UINT64_MAX, KeyDetail::kAll)) {
      if (key.find("host-1|||") == std::string::npos) want[key] = sum;
    }
    EXPECT_TRUE(got == want) << rolled << Difference(got, want);
  }
}

TEST_F(RocksStoreTest, LateBatchesReachEveryLevel) {
  ModelAgent a = NewAgent(1);
  ModelAgent late = NewAgent(2);
  for (uint64_t minute = 1; minute <= 26 * 60; minute += 11) {
    Take(&a, kTestStartUnixNs + minute * kMinuteNs, 3);
  }
  Upkeep(kTestStartUnixNs + 26 * kHourNs);
  const ScanRange day{kTestStartUnixNs, kTestStartUnixNs + kDayNs, Level::k1d};
  for (uint64_t hour : {20, 3, 3, 11}) {
    Take(&late, kTestStartUnixNs + hour * kHourNs + 90 * kTestSecondNs, 3);
    Take(&a, kTestStartUnixNs + hour * kHourNs + 50 * kTestSecondNs, 3);
    ExpectAgrees(day);  // stale buckets are read at a finer level
    EXPECT_TRUE(LevelsUsed(day).contains(Level::kRaw));
    Upkeep(kTestStartUnixNs + 26 * kHourNs);
    ExpectAgrees(day);
    EXPECT_EQ(LevelsUsed(day), std::set<Level>{Level::k1d});
  }
}

// Upkeep rewrites raw windows as shares of their minute's sum, and again when late ones come.
TEST_F(RocksStoreTest, RawWindowsStayExactWhenTheyAreRewritten) {
  ModelAgent a = NewAgent(1);
  ModelAgent b = NewAgent(2);
  const uint64_t start = kTestStartUnixNs;
  for (uint64_t i = 1; i <= 18; ++i) {
    Take(&a, start + i * 10 * kTestSecondNs, 40);
    if (i != 3) Take(&b, start + i * 10 * kTestSecondNs - 3 * kTestSecondNs, 5);
  }
  auto expect_exact = [&] {
    ExpectAgrees({start, start + kHourNs, Level::kRaw});
    for (uint64_t from = 0; from < 180; from += 7) {
      for (uint64_t length : {1, 10, 35, 61}) {
        const uint64_t at = start + from * kTestSecondNs;
        ExpectAgrees({at, at + length * kTestSecondNs, Level::k1d});
        ExpectAgrees({at, at + length * kTestSecondNs, Level::kRaw});
      }
    }
  };
  Upkeep(start + kHourNs);
  EXPECT_EQ(store_->Gauges()["minutes_shared_total"], 6);
  EXPECT_EQ(store_->Gauges()["minutes_kept_total"], 0);
  expect_exact();
  // Late ones: they stand alone first.
  Take(&a, start + 15 * kTestSecondNs, 30);
  Take(&b, start + 2 * kMinuteNs, 30, kMinuteNs);
  expect_exact();
  Upkeep(start + kHourNs);
  EXPECT_EQ(store_->Gauges()["minutes_shared_total"], 8);
  expect_exact();
  Open();
  expect_exact();
  // A minute that must be folded cannot be told by its sum: its windows stand alone again.
  options_.rollup_files.fill(1);
  Open();
  Take(&a, start + 25 * kTestSecondNs, 30);
  Upkeep(start + kHourNs);
  EXPECT_EQ(store_->Gauges()["minutes_kept_total"], 1);
  ExpectAgrees({start, start + kHourNs, Level::kRaw});
  ExpectAgrees({start, start + kHourNs, Level::k1d}, /*files=*/false);
  // And once more, when it may be whole.
  options_.rollup_files.fill(1000);
  Open();
  Take(&a, start + 26 * kTestSecondNs, 30);
  Upkeep(start + kHourNs);
  EXPECT_EQ(store_->Gauges()["minutes_shared_total"], 1);
  expect_exact();
}

TEST_F(RocksStoreTest, UpkeepWaitsForTheEndOfABucketAndItsGrace) {
  options_.rollup_grace_ns = 20 * kTestSecondNs;
  Open();
  ModelAgent a = NewAgent(1);
  Take(&a, kTestStartUnixNs + 30 * kTestSecondNs);
  const ScanRange minute{kTestStartUnixNs, kTestStartUnixNs + kMinuteNs, Level::k1d};
  Upkeep(kTestStartUnixNs + kMinuteNs + 19 * kTestSecondNs);
  EXPECT_EQ(LevelsUsed(minute), std::set<Level>{Level::kRaw});
  Upkeep(kTestStartUnixNs + kMinuteNs + 20 * kTestSecondNs);
  EXPECT_EQ(LevelsUsed(minute), std::set<Level>{Level::k1m});
}

TEST_F(RocksStoreTest, FilesBeyondTheLargestFoldIntoNone) {
  options_.rollup_files = {0, 3, 3, 3, 3, 3};
  Open();
  ModelAgent a = NewAgent(1);
  for (uint64_t i = 1; i <= 6; ++i) Take(&a, kTestStartUnixNs + i * 10 * kTestSecondNs, 40);
  Upkeep(kTestStartUnixNs + 25 * kHourNs);
  ExpectAgrees(kEverything, /*files=*/false);
  std::set<uint32_t> files;
  ASSERT_TRUE(store_->NewReadView()
                  ->ScanHosts(AllHosts(), {kTestStartUnixNs, kTestStartUnixNs + kDayNs, Level::k1d},
                              [&](const ScannedBlock& block) {
                                files.insert(block.rows->files().begin(),
                                             block.rows->files().end());
                                return true;
                              })
                  .ok());
  EXPECT_EQ(files.size(), 4u);  // three and none
}

TEST_F(RocksStoreTest, RowsBeyondTheBoundKeepTheirSums) {
  options_.rollup_max_rows = 20;
  Open();
  ModelAgent a = NewAgent(1);
  Take(&a, kTestStartUnixNs + 10 * kTestSecondNs, 300);
  Upkeep(kTestStartUnixNs + kMinuteNs * 2);
  uint64_t bytes = 0;
  uint64_t ios = 0;
  std::unique_ptr<ReadView> view = store_->NewReadView();
  auto sum = [&](const ScannedBlock& block) {
    EXPECT_EQ(block.level, Level::k1m);
    for (uint64_t n : block.rows->bytes()) bytes += n;
    for (uint64_t n : block.rows->ios()) ios += n;
    return true;
  };
  ASSERT_TRUE(
      view->ScanHosts(AllHosts(), {kTestStartUnixNs, kTestStartUnixNs + kMinuteNs}, sum).ok());
  uint64_t want_bytes = 0;
  uint64_t want_ios = 0;
  for (const auto& [key, s] : model_.Rows(0, UINT64_MAX, KeyDetail::kAll)) {
    want_bytes += s.bytes;
    want_ios += s.ios;
  }
  EXPECT_EQ(bytes, want_bytes);
  EXPECT_EQ(ios, want_ios);
}

TEST_F(RocksStoreTest, RetentionDropsFineDataAndKeepsTheSums) {
  options_.retention_ns = {6 * kHourNs, kDayNs, 2 * kDayNs, 20 * kDayNs, 20 * kDayNs, 400 * kDayNs};
  Open();
  ModelAgent a = NewAgent(1);
  for (uint64_t minute = 1; minute <= 3 * 24 * 60; minute += 13) {
    Take(&a, kTestStartUnixNs + minute * kMinuteNs, 3);
  }
  const uint64_t now = kTestStartUnixNs + 3 * kDayNs + kHourNs;
  Upkeep(now);
  Upkeep(now);
  const uint64_t start = kTestStartUnixNs;
  // Every level alone holds what it should; ranges are multiples of what is left.
  ExpectAgrees({start, start + 3 * kDayNs, Level::k1d});
  ExpectAgrees({start, start + 3 * kDayNs, Level::k1h});
  ExpectAgrees({start + kHourNs, start + 70 * kHourNs, Level::k1d});
  EXPECT_EQ(LevelsUsed({start + kDayNs, start + 2 * kDayNs, Level::k10m}),
            std::set<Level>{Level::k10m});
  EXPECT_FALSE(LevelsUsed({start, start + 2 * kDayNs, Level::kRaw}).contains(Level::kRaw));
  EXPECT_EQ(LevelsUsed({now - 2 * kHourNs, now, Level::kRaw}), std::set<Level>{Level::kRaw});
  // Rounded outward where nothing finer is left.
  RowSums got = ReadHosts(*store_->NewReadView(), AllHosts(),
                          {start + 61 * kTestSecondNs, start + 62 * kTestSecondNs, Level::k1d},
                          KeyDetail::kAll);
  RowSums want = model_.Rows(start, start + kHourNs, KeyDetail::kAll);
  EXPECT_TRUE(got == want) << Difference(got, want);
  Open();
  ExpectAgrees({start, start + 3 * kDayNs, Level::k1d});
}

TEST_F(RocksStoreTest, WhatComesAfterRetentionIsSummedIntoWhatIsLeft) {
  options_.retention_ns = {6 * kHourNs, kDayNs, 2 * kDayNs, 20 * kDayNs, 20 * kDayNs, 21 * kDayNs};
  Open();
  ModelAgent a = NewAgent(1);
  ModelAgent late = NewAgent(2);
  Take(&a, kTestStartUnixNs + kMinuteNs, 3);
  Take(&late, kTestStartUnixNs + kMinuteNs, 3);
  Take(&a, kTestStartUnixNs + 3 * kDayNs, 3);
  const uint64_t now = kTestStartUnixNs + 3 * kDayNs + kHourNs;
  Upkeep(now);
  Upkeep(now);
  for (uint64_t minutes : {1, 2, 3, 70, 24 * 60, 50 * 60, 69 * 60}) {
    Take(&late, kTestStartUnixNs + minutes * kMinuteNs, 3);
    Take(&a, kTestStartUnixNs + minutes * kMinuteNs + 5 * kTestSecondNs, 3);
  }
  const ScanRange days{kTestStartUnixNs, kTestStartUnixNs + 4 * kDayNs, Level::k1d};
  Upkeep(now);
  ExpectAgrees(days);
  Open();
  ExpectAgrees(days);
  // Older than anything that is kept: acknowledged, counted, gone.
  Upkeep(kTestStartUnixNs + 800 * kDayNs);
  ModelAgent::Outgoing out = a.Next(kTestStartUnixNs, 10 * kTestSecondNs, 9);
  EXPECT_EQ(Append(a, out).outcome, Outcome::kDurable);
  EXPECT_EQ(store_->Gauges()["too_old_rows_total"], 9);
}

TEST_F(RocksStoreTest, TagWaitsOfStrangersAreNotRead) {
  ModelAgent a = NewAgent(1);
  ModelAgent b = NewAgent(2);
  uint64_t waits = 0;
  for (uint64_t n = 1; n <= 30; ++n) {
    ModelAgent::Outgoing out = a.Next(kTestStartUnixNs + n * kMinuteNs, kMinuteNs, 1);
    waits += static_cast<uint64_t>(out.batch.tag_waits().rows_size());
    ASSERT_EQ(Append(a, out).outcome, Outcome::kDurable);
    // Sent twice, as after a lost acknowledgement.
    EXPECT_EQ(Append(a, out).outcome, Outcome::kDuplicate);
    Take(&b, kTestStartUnixNs + n * kMinuteNs);
  }
  EXPECT_GT(waits, 0u);
  std::unique_ptr<ReadView> view = store_->NewReadView();
  std::vector<HostNumber> only_b = {b.number};
  EXPECT_TRUE(ReadTagWaits(*view, only_b, kEverything) == model_.TagWaits(0, UINT64_MAX));
  int calls = 0;
  ASSERT_TRUE(view->TagWaits(AllHosts(), kEverything,
                             [&calls](const ScannedTagWaits&) {
                               ++calls;
                               return false;
                             })
                  .ok());
  EXPECT_EQ(calls, 1);
}

TEST_F(RocksStoreTest, TagWaitsWithoutDefinitionsAreAskedFor) {
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing out = a.Next(kTestStartUnixNs + kMinuteNs, kMinuteNs, 1);
  v1::TagWaits* waits = out.batch.mutable_tag_waits();
  waits->Clear();
  v1::TagWaitRow* row = waits->add_rows();
  row->set_device(901);
  row->set_intent(902);
  row->set_actor(903);
  waits->add_holders()->set_holder_device(904);
  waits->add_disks()->set_device(901);
  AppendResult result = Append(a, out);
  ASSERT_EQ(result.outcome, Outcome::kNeedDefinitions);
  ASSERT_EQ(result.need.devices_size(), 2);
  EXPECT_EQ(result.need.devices(0), 901u);
  EXPECT_EQ(result.need.devices(1), 904u);
  ASSERT_EQ(result.need.intents_size(), 1);
  EXPECT_EQ(result.need.intents(0), 902u);
  ASSERT_EQ(result.need.actors_size(), 1);
  EXPECT_EQ(result.need.actors(0), 903u);
}

TEST_F(RocksStoreTest, GapsAreFoundByOverlap) {
  ModelAgent a = NewAgent(1);
  ModelAgent b = NewAgent(2);
  auto gap = [](uint64_t from, uint64_t to) {
    v1::Gap g;
    g.set_start_unix_ns(kTestStartUnixNs + from);
    g.set_end_unix_ns(kTestStartUnixNs + to);
    g.set_cause("agent_down");
    return g;
  };
  ASSERT_TRUE(store_->AddGap(a.number, gap(100, 200)).ok());
  ASSERT_TRUE(store_->AddGap(a.number, gap(150, 500)).ok());
  ASSERT_TRUE(store_->AddGap(b.number, gap(300, 400)).ok());
  auto count = [&](std::vector<HostNumber> hosts, uint64_t from, uint64_t to) {
    ScanRange range{kTestStartUnixNs + from, kTestStartUnixNs + to, Level::k1d};
    return store_->NewReadView()->Gaps(hosts, range).value().size();
  };
  EXPECT_EQ(count(AllHosts(), 0, 1000), 3u);
  EXPECT_EQ(count(AllHosts(), 0, 100), 0u);
  EXPECT_EQ(count(AllHosts(), 0, 101), 1u);
  EXPECT_EQ(count(AllHosts(), 200, 300), 1u);
  EXPECT_EQ(count({b.number}, 0, 1000), 1u);
  EXPECT_EQ(count(AllHosts(), 500, 1000), 0u);
}

TEST_F(RocksStoreTest, SkippingRaisesTheSequenceAndLeavesAGap) {
  ModelAgent a = NewAgent(1);
  v1::Gap gap;
  gap.set_start_unix_ns(kTestStartUnixNs);
  gap.set_end_unix_ns(kTestStartUnixNs + kMinuteNs);
  gap.set_cause("spool_full");
  ASSERT_TRUE(store_->SkipTo(a.number, a.spool_epoch(), 41, gap).ok());
  ASSERT_TRUE(store_->SkipTo(a.number, a.spool_epoch(), 7, gap).ok());
  Open();
  EXPECT_EQ(store_->DurableSeq(a.number, a.spool_epoch()).value(), 41u);
  a.seq = 41;
  Take(&a, kTestStartUnixNs + 2 * kMinuteNs);
  EXPECT_EQ(store_->NewReadView()->Gaps(AllHosts(), kEverything).value().size(), 1u);
}

TEST_F(RocksStoreTest, AGroupOfHostsIsOneWriteAndSurvives) {
  HostRecord known;
  known.host_id = "known";
  known.first_seen_unix_ns = 3;
  known.last_seen_unix_ns = 100;
  const HostNumber known_number = store_->UpsertHost(known).value();
  std::vector<HostRecord> group(4);
  for (HostRecord& host : group) host.last_seen_unix_ns = 50;
  group[0].host_id = "new-1";
  group[1].host_id = "known";
  group[2].host_id = "new-2";
  group[3].host_id = "new-1";
  group[3].hostname = "the later one counts";
  std::vector<HostNumber> numbers = store_->UpsertHosts(group).value();
  ASSERT_EQ(numbers.size(), 4u);
  EXPECT_EQ(numbers[1], known_number);
  EXPECT_EQ(numbers[3], numbers[0]);
  EXPECT_NE(numbers[2], numbers[0]);
  EXPECT_EQ(store_->UpsertHosts({}).value().size(), 0u);
  group[2].host_id.clear();
  EXPECT_FALSE(store_->UpsertHosts(group).ok());
  for (bool reopened : {false, true}) {
    if (reopened) Open();
    std::vector<HostRecord> hosts = store_->NewReadView()->Hosts();
    ASSERT_EQ(hosts.size(), 3u) << "nothing of a refused group is written";
    for (const HostRecord& host : hosts) {
      if (host.host_id == "known") {
        EXPECT_EQ(host.first_seen_unix_ns, 3u);
        EXPECT_EQ(host.last_seen_unix_ns, 100u);
      }
      if (host.host_id == "new-1") {
        EXPECT_EQ(host.hostname, "the later one counts");
        EXPECT_EQ(host.number, numbers[0]);
      }
    }
  }
}

TEST_F(RocksStoreTest, HostsKeepNumberAndFirstSeen) {
  HostRecord host;
  host.host_id = "db-1";
  host.hostname = "old";
  host.first_seen_unix_ns = 5;
  host.last_seen_unix_ns = 9;
  HostNumber number = store_->UpsertHost(host).value();
  host.hostname = "new";
  host.first_seen_unix_ns = 8;
  host.last_seen_unix_ns = 12;
  host.labels["role"] = "db";
  EXPECT_EQ(store_->UpsertHost(host).value(), number);
  HostRecord other;
  other.host_id = "db-2";
  EXPECT_NE(store_->UpsertHost(other).value(), number);
  for (bool reopened : {false, true}) {
    if (reopened) Open();
    std::vector<HostRecord> hosts = store_->NewReadView()->Hosts();
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_EQ(hosts[0].hostname, "new");
    EXPECT_EQ(hosts[0].first_seen_unix_ns, 5u);
    EXPECT_EQ(hosts[0].last_seen_unix_ns, 12u);
    EXPECT_EQ(hosts[0].labels.at("role"), "db");
  }
}

TEST_F(RocksStoreTest, CollidingIntentIsRefusedAndNewVariantsAreMerged) {
  ModelAgent a = NewAgent(1);
  ModelAgent b = NewAgent(2);
  Take(&a, kTestStartUnixNs + kMinuteNs, 50);
  Take(&b, kTestStartUnixNs + kMinuteNs, 50);
  IntentNumber number = store_->NewReadView()->FindIntents("a1", 9).value().at(0);
  EXPECT_EQ(store_->NewReadView()->Intent(number).value().variants_size(), 2);

  ModelAgent c = NewAgent(3);
  ModelAgent::Outgoing out = c.Next(kTestStartUnixNs + kMinuteNs, 10 * kTestSecondNs, 5);
  out.batch.mutable_definitions()->mutable_intents()->begin()->second.set_frames(0, "forged");
  AppendResult result = Append(c, out);
  EXPECT_EQ(result.outcome, Outcome::kInvalid);
  EXPECT_EQ(result.error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Gauges()["intent_collisions_total"], 1);
  ExpectAgrees(kEverything);
}

// A batch that is refused leaves nothing behind: not even that one of the colliding intents which was
// looked at first, and that may be any of them.
TEST_F(RocksStoreTest, CollidingIntentsInOneBatchAreRefusedAndForgotten) {
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing out = a.Next(kTestStartUnixNs + kMinuteNs, 10 * kTestSecondNs, 5);
  auto& intents = *out.batch.mutable_definitions()->mutable_intents();
  const v1::Intent original = intents.begin()->second;
  constexpr uint32_t kFirstTwin = 90000, kTwins = 50;
  for (uint32_t i = 0; i < kTwins; ++i) {
    v1::Intent twin = original;
    twin.set_modifier(absl::StrCat("other", i));
    intents[kFirstTwin + i] = twin;
  }
  const AppendResult refused = Append(a, out);
  EXPECT_EQ(refused.outcome, Outcome::kInvalid);
  EXPECT_NE(refused.error.message().find("collides"), std::string::npos) << refused.error;
  EXPECT_EQ(store_->Gauges()["intents"], 0);
  for (uint32_t i = 0; i < kTwins; ++i) intents.erase(kFirstTwin + i);
  const AppendResult taken = Append(a, out);
  EXPECT_EQ(taken.outcome, Outcome::kDurable) << taken.error;
  model_.Add(a, out);
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, IntentsBeyondTheirBoundAreRefusedAndForgotten) {
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing out = a.Next(kTestStartUnixNs + kMinuteNs, 10 * kTestSecondNs, 5);
  auto& intents = *out.batch.mutable_definitions()->mutable_intents();
  const auto wanted = static_cast<uint32_t>(intents.size());
  options_.max_intents = wanted;
  Open();
  v1::Intent more = intents.begin()->second;
  more.set_intent_id("0123456789abcdef");
  intents[90000] = more;
  const AppendResult refused = Append(a, out);
  EXPECT_EQ(refused.outcome, Outcome::kInvalid);
  EXPECT_NE(refused.error.message().find("takes no more"), std::string::npos) << refused.error;
  EXPECT_EQ(store_->Gauges()["intents"], 0);
  intents.erase(90000);
  const AppendResult taken = Append(a, out);
  EXPECT_EQ(taken.outcome, Outcome::kDurable) << taken.error;
  EXPECT_EQ(store_->Gauges()["intents"], wanted);
  model_.Add(a, out);
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, AgentsNewLifeHasNewNumbersAndOldOnesStillRead) {
  ModelAgent a = NewAgent(1);
  for (uint64_t life = 0; life < 4; ++life) {
    for (uint64_t i = 1; i <= 3; ++i) {
      Take(&a, kTestStartUnixNs + (life * 10 + i) * kMinuteNs, 20);
    }
    a.Restart();
  }
  ExpectAgrees(kEverything);
  EXPECT_EQ(store_->Gauges()["intents"], 6);
  EXPECT_EQ(store_->Gauges()["files"], 12);
}

TEST_F(RocksStoreTest, DictionariesOfEarlierLivesGoInTime) {
  options_.dictionary_keep_ns = 0;
  Open();
  ModelAgent a = NewAgent(1);
  Take(&a, kTestStartUnixNs + kMinuteNs, 20);
  ModelAgent earlier = a;
  a.Restart();
  Take(&a, kTestStartUnixNs + 2 * kMinuteNs, 20);
  Upkeep(kTestStartUnixNs + kHourNs);
  // The earlier dictionary is unknown now, the present one is not.
  earlier.seq = a.seq;
  ModelAgent::Outgoing old = earlier.Next(kTestStartUnixNs + 3 * kMinuteNs, kTestSecondNs, 20);
  EXPECT_EQ(Append(earlier, old).outcome, Outcome::kNeedDefinitions);
  Take(&a, kTestStartUnixNs + 3 * kMinuteNs, 20);
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, DefinitionsBeyondTheirBoundFold) {
  options_.max_files = 5;
  options_.max_actors = 3;
  Open();
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing out = a.Next(kTestStartUnixNs + kMinuteNs, 10 * kTestSecondNs, 100);
  EXPECT_EQ(Append(a, out).outcome, Outcome::kDurable);
  std::map<std::string, double> gauges = store_->Gauges();
  EXPECT_EQ(gauges["files"], 6);  // five and the other one
  EXPECT_GE(gauges["definitions_folded_total"], 7);
  std::unique_ptr<ReadView> view = store_->NewReadView();
  EXPECT_EQ(view->File(6).value().path(), "…/other");
  std::set<std::string> comms;
  for (ActorNumber n = 1; n <= gauges["actors"]; ++n) comms.insert(view->Actor(n).value().comm());
  EXPECT_TRUE(comms.contains("…/other"));
}

TEST_F(RocksStoreTest, ASmallCacheOfDictionariesChangesNothing) {
  options_.dictionary_cache_entries = 10;
  Open();
  std::vector<ModelAgent> agents;
  for (int i = 1; i <= 5; ++i) agents.push_back(NewAgent(i));
  for (uint64_t round = 1; round <= 6; ++round) {
    for (ModelAgent& agent : agents) Take(&agent, kTestStartUnixNs + round * kMinuteNs, 6);
  }
  ExpectAgrees(kEverything);
}

TEST_F(RocksStoreTest, DirectivesAreKept) {
  v1::ListDirectivesResponse::Set set;
  set.set_name("slow-disks");
  set.set_selector("{role=\"db\"}");
  set.mutable_directives()->set_revision(7);
  ASSERT_TRUE(store_->PutDirectives(set).ok());
  set.set_name("a");
  ASSERT_TRUE(store_->PutDirectives(set).ok());
  Open();
  auto sets = store_->ListDirectives().value();
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[1].name(), "slow-disks");
  EXPECT_EQ(sets[1].directives().revision(), 7u);
  EXPECT_TRUE(store_->DeleteDirectives("a").ok());
  EXPECT_EQ(store_->DeleteDirectives("a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->ListDirectives().value().size(), 1u);
}

TEST_F(RocksStoreTest, IntentsAreFoundByPrefixAndSeenSpan) {
  ModelAgent a = NewAgent(1);
  Take(&a, kTestStartUnixNs + kMinuteNs, 200);
  Take(&a, kTestStartUnixNs + 5 * kMinuteNs, 200);
  std::unique_ptr<ReadView> view = store_->NewReadView();
  EXPECT_EQ(view->FindIntents("a", 100).value().size(), 6u);
  EXPECT_EQ(view->FindIntents("A", 100).value().size(), 6u);
  EXPECT_EQ(view->FindIntents("", 4).value().size(), 4u);
  EXPECT_EQ(view->FindIntents("a3", 100).value().size(), 1u);
  EXPECT_EQ(view->FindIntents("a30", 100).value().size(), 1u);
  EXPECT_EQ(view->FindIntents("a31", 100).value().size(), 0u);
  EXPECT_EQ(view->FindIntents("zz", 100).value().size(), 0u);
  int seen = 0;
  ASSERT_TRUE(view->ForEachIntent([&](IntentNumber n, const v1::Intent& intent) {
                    EXPECT_EQ(view->Intent(n).value().intent_id(), intent.intent_id());
                    return ++seen < 5;
                  })
                  .ok());
  EXPECT_EQ(seen, 5);
  for (bool reopened : {false, true}) {
    if (reopened) {
      view.reset();
      Open();
      view = store_->NewReadView();
    }
    ReadView::SeenSpan span = view->IntentSeen(1).value();
    EXPECT_EQ(span.first_unix_ns, kTestStartUnixNs + kMinuteNs - 10 * kTestSecondNs);
    EXPECT_EQ(span.last_unix_ns, kTestStartUnixNs + 5 * kMinuteNs);
  }
  EXPECT_EQ(view->IntentSeen(99).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(view->Actor(12345).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RocksStoreTest, AViewStaysAsItWas) {
  ModelAgent a = NewAgent(1);
  Take(&a, kTestStartUnixNs + 10 * kTestSecondNs);
  Upkeep(kTestStartUnixNs + 2 * kMinuteNs);
  std::unique_ptr<ReadView> view = store_->NewReadView();
  RowSums before = model_.Rows(0, UINT64_MAX, KeyDetail::kAll);
  Take(&a, kTestStartUnixNs + 20 * kTestSecondNs);
  NewAgent(2);
  Upkeep(kTestStartUnixNs + 2 * kMinuteNs);
  EXPECT_TRUE(ReadHosts(*view, AllHosts(), kEverything, KeyDetail::kAll) == before);
  EXPECT_EQ(view->Hosts().size(), 1u);
}

TEST_F(RocksStoreTest, ScansStopWhenTold) {
  ModelAgent a = NewAgent(1);
  for (uint64_t i = 1; i <= 10; ++i) Take(&a, kTestStartUnixNs + i * 10 * kTestSecondNs);
  int blocks = 0;
  auto sink = [&](const ScannedBlock&) { return ++blocks < 3; };
  EXPECT_TRUE(store_->NewReadView()->ScanHosts(AllHosts(), kEverything, sink).ok());
  EXPECT_EQ(blocks, 3);
  blocks = 0;
  EXPECT_TRUE(store_->NewReadView()->ScanFleet(kEverything, sink).ok());
  EXPECT_EQ(blocks, 3);
}

TEST_F(RocksStoreTest, NonsenseIsRefusedBatchByBatch) {
  ModelAgent a = NewAgent(1);
  ModelAgent::Outgoing good = a.Next(kTestStartUnixNs + kMinuteNs, 10 * kTestSecondNs, 5);
  std::vector<std::function<void(v1::Batch*)>> cases = {
      [](v1::Batch* b) { b->mutable_window()->set_start_boot_ns(b->window().end_boot_ns()); },
      [](v1::Batch* b) { b->mutable_window()->set_realtime_offset_ns(INT64_MIN); },
      [](v1::Batch* b) { b->mutable_window()->set_realtime_offset_ns(INT64_MAX); },
      [](v1::Batch* b) {
        b->mutable_window()->set_start_boot_ns(0), b->mutable_window()->set_realtime_offset_ns(0);
      },
      [](v1::Batch* b) {
        b->mutable_definitions()->mutable_intents()->begin()->second.set_intent_id("x");
      },
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    ModelAgent::Outgoing bad = good;
    cases[i](&bad.batch);
    AppendResult result = Append(a, bad);
    EXPECT_EQ(result.outcome, Outcome::kInvalid) << i;
    EXPECT_FALSE(result.error.ok()) << i;
  }
  ModelAgent stranger(9, 9);
  stranger.number = 77;
  EXPECT_EQ(Append(stranger, stranger.Next(kTestStartUnixNs + kMinuteNs, kTestSecondNs, 1)).outcome,
            Outcome::kInvalid);
  EXPECT_EQ(Append(a, good).outcome, Outcome::kDurable);
  model_.Add(a, good);
  ExpectAgrees(kEverything);
}

// Everything at random against the model: batches on time and late, restarts of agents, upkeep at
// any moment and with any budget, the store opened anew.
TEST_F(RocksStoreTest, RandomOperationsAgreeWithTheModel) {
  options_.retention_ns.fill(365 * kDayNs);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    store_.reset();  // or it would go on deleting files of its own meanwhile
    std::filesystem::remove_all(options_.path);
    model_ = StoreModel();
    hosts_.clear();
    Open();
    std::mt19937_64 random(seed);
    std::vector<ModelAgent> agents;
    uint64_t now = kTestStartUnixNs;
    for (int step = 0; step < 400; ++step) {
      uint64_t what = random() % 100;
      if (agents.empty() || (what < 2 && agents.size() < 6)) {
        agents.push_back(NewAgent(static_cast<int>(agents.size()) + 1));
      } else if (what < 75) {
        now += random() % 200 * kTestSecondNs;
        uint64_t late = random() % 10 == 0 ? random() % (30 * kHourNs) : random() % kMinuteNs;
        uint64_t length = random() % 5 == 0 ? kMinuteNs : 10 * kTestSecondNs;
        Take(&agents[random() % agents.size()], now + kDayNs * 2 - late,
             static_cast<int>(random() % 8), length);
      } else if (what < 80) {
        agents[random() % agents.size()].Restart();
      } else if (what < 90) {
        ASSERT_TRUE(
            store_->Upkeep(now + 2 * kDayNs, random() % 3 == 0 ? kForeverNs : 200'000).ok());
      } else if (what < 92) {
        Open();
      } else if (what < 96) {
        uint64_t from = now + random() % (2 * kDayNs);
        ExpectAgrees(
            {from, from + random() % (kDayNs / 2), static_cast<Level>(random() % kLevels)});
      }
      if (HasFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    ExpectAgrees(kEverything);
    Upkeep(now + 10 * kDayNs);
    ExpectAgrees(kEverything);
  }
}

}  // namespace
}  // namespace fleetblame::aggregator
