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

}  // namespace
}  // namespace fleetblame::aggregator
