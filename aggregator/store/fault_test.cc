// SPDX-License-Identifier: Apache-2.0
//
// A full disk: refused with a sentence, readable meanwhile, writing again once there is room, and
// nothing acknowledged lost. Needs root (a tmpfs of its own).
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "aggregator/store/rocks_store.h"
#include "aggregator/store/testing/store_model.h"
#include "aggregator/store/testing/temp_store.h"

namespace fleetblame::aggregator {
namespace {

namespace fs = std::filesystem;

class FaultTest : public testing::Test {
 protected:
  void SetUp() override {
    mount_point_ = testing::TempDir() + "/fault_" + std::to_string(getpid());
    fs::create_directories(mount_point_);
    mounted_ = mount("none", mount_point_.c_str(), "tmpfs", 0, "size=160m") == 0;
    if (!mounted_) GTEST_SKIP() << "needs root to mount a tmpfs";
    // Thrown out, it makes room enough for whatever compaction rewrites, too.
    std::ofstream(Ballast()) << std::string(136 << 20, 'x');
    options_ = SmallStore("unused");
    options_.path = mount_point_ + "/store";
  }
  void TearDown() override {
    store_.reset();
    if (mounted_) umount(mount_point_.c_str());
    fs::remove_all(mount_point_);
  }
  std::string Ballast() const { return mount_point_ + "/ballast"; }

  void Open() {
    store_.reset();
    auto store = OpenRocksStore(options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    agent_.number = store_->UpsertHost(agent_.Record()).value();
  }

  // Sends the batch that is due; an agent repeats it until it is taken.
  absl::Status Send() {
    if (!due_.has_value()) {
      due_ = agent_.Next(kTestStartUnixNs + (agent_.seq + 1) * 20 * kTestSecondNs,
                         10 * kTestSecondNs, 1500);
    }
    IncomingBatch in{agent_.number, &due_->batch, &due_->rows};
    auto results = store_->Append({&in, 1});
    if (!results.ok()) return results.status();
    EXPECT_NE((*results)[0].outcome, AppendResult::Outcome::kOutOfOrder);
    EXPECT_NE((*results)[0].outcome, AppendResult::Outcome::kInvalid) << (*results)[0].error;
    model_.Add(agent_, *due_);
    due_.reset();
    return absl::OkStatus();
  }

  void ExpectWhole() {
    std::vector<HostNumber> all = {agent_.number};
    RowSums got = ReadHosts(*store_->NewReadView(), all, kAllTime, KeyDetail::kNoFiles);
    RowSums want = model_.Rows(0, UINT64_MAX, KeyDetail::kNoFiles);
    EXPECT_TRUE(got == want) << Difference(got, want);
  }

  void FillAndRecover() {
    Open();
    absl::Status status;
    int sent = 0;
    for (; sent < 3000 && status.ok(); ++sent) status = Send();
    ASSERT_FALSE(status.ok()) << "the disk never filled up";
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_GT(sent, 10);
    ExpectWhole();
    EXPECT_FALSE(Send().ok());
    store_->Upkeep(kTestStartUnixNs + 86400 * kTestSecondNs, kTestSecondNs).IgnoreError();
    fs::remove(Ballast());
    // It comes back by itself.
    for (int i = 0; i < 300 && !(status = Send()).ok(); ++i) usleep(100'000);
    ASSERT_TRUE(status.ok()) << status;
    for (int i = 0; i < 5; ++i) {
      status = Send();
      ASSERT_TRUE(status.ok()) << status;
    }
    ExpectWhole();
    Open();
    ExpectWhole();
    ASSERT_EQ(store_->DurableSeq(agent_.number, agent_.spool_epoch()).value(), agent_.seq);
  }

  std::string mount_point_;
  bool mounted_ = false;
  RocksStoreOptions options_;
  std::unique_ptr<Store> store_;
  ModelAgent agent_{1, 5};
  StoreModel model_;
  std::optional<ModelAgent::Outgoing> due_;
};

TEST_F(FaultTest, DiskFullIsNoticedBeforehand) {
  options_.min_free_bytes = 6 << 20;
  FillAndRecover();
}

TEST_F(FaultTest, DiskFullInTheMiddleOfAWrite) {
  options_.min_free_bytes = 0;
  FillAndRecover();
}

}  // namespace
}  // namespace fleetblame::aggregator
