// SPDX-License-Identifier: Apache-2.0
//
// Readers, writers and upkeep at once: each view is one moment, at whatever resolution it is read.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "aggregator/store/rocks_store.h"
#include "aggregator/store/testing/store_model.h"
#include "aggregator/store/testing/temp_store.h"

namespace fleetblame::aggregator {
namespace {

TEST(ConcurrencyTest, ViewsSeeWholeBatchesAndNeverLessThanWasAcknowledged) {
  RocksStoreOptions options = SmallStore("concurrency");
  options.rollup_grace_ns = 0;
  auto opened = OpenRocksStore(options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Store& store = **opened;
  constexpr int kAgents = 3;
  constexpr uint64_t kBatches = 250;
  constexpr uint64_t kIosPerBatch = 7;
  std::atomic<uint64_t> acked{0};
  std::atomic<uint64_t> newest{kTestStartUnixNs};
  std::atomic<int> writing{kAgents};
  std::vector<HostNumber> hosts;
  std::vector<ModelAgent> agents;
  for (int i = 0; i < kAgents; ++i) {
    agents.emplace_back(i + 1, static_cast<uint64_t>(i));
    agents.back().number = store.UpsertHost(agents.back().Record()).value();
    hosts.push_back(agents.back().number);
  }
  std::vector<std::thread> threads;
  for (ModelAgent& agent : agents) {
    threads.emplace_back([&store, &agent, &acked, &newest, &writing] {
      for (uint64_t n = 1; n <= kBatches; ++n) {
        // Every tenth comes late, into buckets that may be rolled up right now.
        uint64_t end = kTestStartUnixNs + (n % 10 == 0 ? n / 2 : n) * 10 * kTestSecondNs;
        ModelAgent::Outgoing out = agent.Next(end, 10 * kTestSecondNs, 1);
        out.rows.set_ios(0, kIosPerBatch);
        IncomingBatch in{agent.number, &out.batch, &out.rows};
        auto results = store.Append({&in, 1});
        ASSERT_TRUE(results.ok()) << results.status();
        ASSERT_EQ((*results)[0].outcome, AppendResult::Outcome::kDurable);
        acked += kIosPerBatch;
        newest = std::max<uint64_t>(newest, end);
      }
      --writing;
    });
  }
  threads.emplace_back([&] {
    while (writing > 0) ASSERT_TRUE(store.Upkeep(newest, 20'000'000).ok());
  });
  auto sum = [](uint64_t* ios) {
    return [ios](const ScannedBlock& block) {
      for (uint64_t n : block.rows->ios()) *ios += n;
      return true;
    };
  };
  std::atomic<int> views{0};
  for (bool fleet : {false, true}) {
    threads.emplace_back([&, fleet] {
      while (writing > 0) {
        uint64_t before = acked;
        auto view = store.NewReadView();
        uint64_t ios = 0;
        absl::Status status = fleet ? view->ScanFleet(kAllTime, sum(&ios))
                                    : view->ScanHosts(hosts, kAllTime, sum(&ios));
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(ios % kIosPerBatch, 0u);
        ASSERT_GE(ios, before);
        uint64_t again = 0;
        ASSERT_TRUE(view->ScanHosts(hosts, {0, UINT64_MAX, Level::kRaw}, sum(&again)).ok());
        ASSERT_EQ(again, ios) << "raw and rolled up differ in one view";
        ++views;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(views, 10);
  ASSERT_TRUE(store.Upkeep(newest + 86400 * kTestSecondNs * 2, 60 * kTestSecondNs).ok());
  uint64_t ios = 0;
  ASSERT_TRUE(store.NewReadView()->ScanFleet(kAllTime, sum(&ios)).ok());
  EXPECT_EQ(ios, kAgents * kBatches * kIosPerBatch);
  opened->reset();
  std::filesystem::remove_all(options.path);
}

}  // namespace
}  // namespace fleetblame::aggregator
