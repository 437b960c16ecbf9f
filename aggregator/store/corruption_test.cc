// SPDX-License-Identifier: Apache-2.0
//
// Damaged files: the store says so in one sentence with the way out, or reads what is right; it
// never crashes, never shows wrong rows, and never destroys what is left.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "aggregator/store/rocks_store.h"
#include "aggregator/store/testing/store_model.h"
#include "aggregator/store/testing/temp_store.h"

namespace fleetblame::aggregator {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeed = 99;
constexpr int kBatches = 120;

class CorruptionTest : public testing::Test {
 protected:
  void SetUp() override {
    options_ = SmallStore("corruption");
    pristine_ = options_.path + "_pristine";
    fs::remove_all(pristine_);
    Build(pristine_);
  }
  void TearDown() override {
    fs::remove_all(options_.path);
    fs::remove_all(pristine_);
  }

  // Half of it in tables with rollups, half in the log.
  void Build(const std::string& path) {
    RocksStoreOptions options = options_;
    options.path = path;
    for (int half = 0; half < 2; ++half) {
      auto store = OpenRocksStore(options);
      ASSERT_TRUE(store.ok()) << store.status();
      ModelAgent agent(1, kSeed);
      agent.number = (*store)->UpsertHost(agent.Record()).value();
      for (int i = 0; i < half * kBatches / 2; ++i) NthBatch(&agent);
      if (half == 1) agent.Redefine();
      for (int i = 0; i < kBatches / 2; ++i) {
        ModelAgent::Outgoing out = NthBatch(&agent);
        IncomingBatch in{agent.number, &out.batch, &out.rows};
        ASSERT_EQ((*store)->Append({&in, 1}).value()[0].outcome, AppendResult::Outcome::kDurable);
      }
      if (half == 1) continue;
      ASSERT_TRUE(
          (*store)->Upkeep(kTestStartUnixNs + 86400 * kTestSecondNs, 60 * kTestSecondNs).ok());
      store->reset();
      ASSERT_TRUE(CompactRocksStore(options).ok());
    }
  }

  void Restore() {
    fs::remove_all(options_.path);
    fs::copy(pristine_, options_.path, fs::copy_options::recursive);
  }

  std::vector<std::string> Files(const std::string& part) const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(pristine_)) {
      std::string name = entry.path().filename().string();
      if (name.find(part) != std::string::npos && entry.file_size() > 0) files.push_back(name);
    }
    return files;
  }

  void Flip(const std::string& file, std::mt19937_64* random, int flips) {
    std::string path = options_.path + "/" + file;
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    auto size = fs::file_size(path);
    for (int i = 0; i < flips; ++i) {
      auto at = static_cast<std::streamoff>((*random)() % size);
      f.seekg(at);
      char c = static_cast<char>(f.get());
      f.seekp(at);
      f.put(static_cast<char>(c ^ static_cast<char>(1 << (*random)() % 8)));
    }
  }

  // Opens what is there; when that works, whatever is shown must be right for the batches that the
  // store says it has. Returns whether the damage was noticed at all.
  bool OpenAndJudge(const std::string& what) {
    auto store = OpenRocksStore(options_);
    if (!store.ok()) {
      EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << what << store.status();
      EXPECT_NE(std::string(store.status().message()).find(options_.path), std::string::npos);
      return true;
    }
    std::vector<HostRecord> hosts = (*store)->NewReadView()->Hosts();
    if (hosts.empty()) return true;
    ModelAgent agent(1, kSeed);
    auto durable = (*store)->DurableSeq(hosts[0].number, agent.spool_epoch());
    if (!durable.ok()) return true;
    EXPECT_LE(*durable, static_cast<uint64_t>(kBatches)) << what;
    StoreModel model;
    while (agent.seq < *durable) {
      bool second_half = agent.seq == kBatches / 2;
      if (second_half) agent.Redefine();
      ModelAgent::Outgoing out = NthBatch(&agent);
      model.Add(agent, out);
    }
    bool failed = false;
    uint64_t ios = 0;
    std::vector<HostNumber> all = {hosts[0].number};
    auto view = (*store)->NewReadView();
    absl::Status status = view->ScanHosts(all, kAllTime, [&](const ScannedBlock& block) {
      for (uint64_t n : block.rows->ios()) ios += n;
      return true;
    });
    failed = !status.ok();
    if (failed) return true;
    uint64_t want = 0;
    for (const auto& [key, sum] : model.Rows(0, UINT64_MAX, KeyDetail::kAll)) want += sum.ios;
    EXPECT_EQ(ios, want) << what;
    return *durable != kBatches;
  }

  RocksStoreOptions options_;
  std::string pristine_;
};

TEST_F(CorruptionTest, UndamagedCopyIsWhole) {
  Restore();
  EXPECT_FALSE(OpenAndJudge("pristine"));
}

TEST_F(CorruptionTest, FlippedBitsInTables) {
  std::mt19937_64 random(1);
  int noticed = 0;
  for (int i = 0; i < 40; ++i) {
    std::vector<std::string> files = Files(".sst");
    ASSERT_FALSE(files.empty());
    Restore();
    Flip(files[random() % files.size()], &random, 8);
    noticed += OpenAndJudge("table flip") ? 1 : 0;
  }
  EXPECT_GT(noticed, 5);
}

TEST_F(CorruptionTest, FlippedBitsInTheLog) {
  std::mt19937_64 random(2);
  int noticed = 0;
  for (int i = 0; i < 30; ++i) {
    Restore();
    for (const std::string& file : Files(".log")) Flip(file, &random, 1 + i % 3);
    noticed += OpenAndJudge("log flip") ? 1 : 0;
  }
  EXPECT_GT(noticed, 10);
}

TEST_F(CorruptionTest, TornTails) {
  std::mt19937_64 random(3);
  for (const char* part : {".log", ".sst", "MANIFEST"}) {
    for (int i = 0; i < 10; ++i) {
      std::vector<std::string> files = Files(part);
      ASSERT_FALSE(files.empty());
      Restore();
      std::string path = options_.path + "/" + files[random() % files.size()];
      fs::resize_file(path, random() % fs::file_size(path));
      OpenAndJudge(std::string("torn ") + part);
    }
  }
}

TEST_F(CorruptionTest, MissingFilesAreDamageAndStayAsTheyAre) {
  std::vector<std::string> tables = Files(".sst");
  ASSERT_FALSE(tables.empty());
  Restore();
  fs::remove(options_.path + "/" + tables[0]);
  auto store = OpenRocksStore(options_);
  ASSERT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  std::string message(store.status().message());
  EXPECT_NE(message.find(options_.repair_command), std::string::npos) << message;
  for (size_t i = 1; i < tables.size(); ++i) {
    EXPECT_TRUE(fs::exists(options_.path + "/" + tables[i]));
  }
  // And the way out works.
  ASSERT_TRUE(RepairRocksStore(options_).ok());
  store = OpenRocksStore(options_);
  EXPECT_TRUE(store.ok()) << store.status();
}

TEST_F(CorruptionTest, ForeignDamagedAndNewerFormatsAreRefused) {
  auto write = [&](const std::string& text) {
    std::ofstream(options_.path + "/FORMAT") << text;
    return OpenRocksStore(options_).status();
  };
  Restore();
  absl::Status status = write("fleetblame store, format 3\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(std::string(status.message()).find("format 3"), std::string::npos);
  EXPECT_EQ(write("nonsense").code(), absl::StatusCode::kDataLoss);
  fs::remove(options_.path + "/FORMAT");
  EXPECT_EQ(OpenRocksStore(options_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(write("fleetblame store, format 2\n").ok());
  EXPECT_FALSE(OpenAndJudge("after all refusals"));
}

TEST_F(CorruptionTest, DirectoriesOfOthersStayAsTheyAre) {
  fs::remove_all(options_.path);
  fs::create_directories(options_.path + "/lost+found");
  std::ofstream(options_.path + "/somebody's") << "own";
  auto store = OpenRocksStore(options_);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(std::string(store.status().message()).find("holds other files (somebody's)"),
            std::string::npos)
      << store.status();
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.path), fs::directory_iterator()), 2);
  // A filesystem of the store's own is not empty.
  fs::remove(options_.path + "/somebody's");
  EXPECT_TRUE(OpenRocksStore(options_).ok());
}

TEST_F(CorruptionTest, SecondOpenIsRefused) {
  Restore();
  auto first = OpenRocksStore(options_);
  ASSERT_TRUE(first.ok());
  auto second = OpenRocksStore(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
  EXPECT_NE(std::string(second.status().message()).find("in use"), std::string::npos);
}

TEST_F(CorruptionTest, NoDirectoryAndNoPermissionSaySo) {
  options_.create_if_missing = false;
  EXPECT_EQ(OpenRocksStore(options_).status().code(), absl::StatusCode::kNotFound);
  options_.create_if_missing = true;
  options_.path = "/proc/no/such/place";
  EXPECT_EQ(OpenRocksStore(options_).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace fleetblame::aggregator
