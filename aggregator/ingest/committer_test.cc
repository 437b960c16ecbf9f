// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/committer.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "aggregator/ingest/batch_decoder.h"
#include "aggregator/ingest/testing/sample_batch.h"
#include "aggregator/store/testing/fake_store.h"
#include "common/log.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

class Recorder : public CommitClient {
 public:
  void OnCommitted(std::vector<Outcome> outcomes) override {
    absl::MutexLock lock(&mu_);
    ++calls_;
    for (const Outcome& outcome : outcomes) results_.push_back(outcome.result);
  }
  void OnCommitFailed(std::vector<DecodedBatchPtr> batches, const absl::Status&) override {
    absl::MutexLock lock(&mu_);
    failed_ += batches.size();
  }
  std::vector<AppendResult> Await(size_t count) {
    absl::MutexLock lock(&mu_);
    auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return results_.size() >= count; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(10)));
    return results_;
  }
  void AwaitFailed(size_t count) {
    absl::MutexLock lock(&mu_);
    auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return failed_ >= count; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(10)));
  }
  int calls() {
    absl::MutexLock lock(&mu_);
    return calls_;
  }

 private:
  absl::Mutex mu_;
  std::vector<AppendResult> results_;
  size_t failed_ = 0;
  int calls_ = 0;
};

DecodedBatchPtr Decoded(uint64_t seq) {
  DecodedBatchPtr decoded(new DecodedBatch);
  decoded->batch = SampleBatch(seq);
  EXPECT_TRUE(DecodeBatch(IngestLimits(), absl::Now(), &decoded->batch, &decoded->rows).ok());
  return decoded;
}

class CommitterTest : public testing::Test {
 protected:
  HostNumber Host(const std::string& id) {
    HostRecord host;
    host.host_id = id;
    return *store_.UpsertHost(host);
  }
  void Start(absl::Duration linger = absl::Milliseconds(1)) {
    Committer::Options options;
    options.linger = linger;
    committer_ = std::make_unique<Committer>(&store_, &metrics_, options,
                                             [this](bool healthy) { health_.push_back(healthy); });
  }

  FakeStore store_;
  IngestMetrics metrics_{std::make_shared<prometheus::Registry>()};
  std::vector<bool> health_;
  std::unique_ptr<Committer> committer_;
};

TEST_F(CommitterTest, GroupsHostsIntoOneWrite) {
  Start(absl::Milliseconds(200));
  std::vector<std::shared_ptr<Recorder>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_shared<Recorder>());
    HostNumber host = Host("h" + std::to_string(i));
    committer_->Submit(clients.back(), host, Decoded(1));
    committer_->Submit(clients.back(), host, Decoded(2));
  }
  for (auto& client : clients) {
    auto results = client->Await(2);
    EXPECT_EQ(results[0].outcome, AppendResult::Outcome::kDurable);
    EXPECT_EQ(results[1].durable_seq, 2u);
    EXPECT_EQ(client->calls(), 1);
  }
  EXPECT_EQ(metrics_.rows.Value(), 300);
  EXPECT_EQ(metrics_.commit_batches.Collect().histogram.sample_count, 1u);
}

TEST_F(CommitterTest, FailureIsToldLoggedOnceAndRecoveredFrom) {
  std::vector<std::string> lines;
  SetLogSinkForTest([&](std::string_view line) { lines.emplace_back(line); });
  Start();
  auto client = std::make_shared<Recorder>();
  HostNumber host = Host("h");
  store_.FailWrites(absl::ResourceExhaustedError("no space left"));
  for (int i = 1; i <= 20; ++i) {
    committer_->Submit(client, host, Decoded(1));
    client->AwaitFailed(i);
  }
  EXPECT_FALSE(committer_->healthy());
  store_.FailWrites(absl::OkStatus());
  committer_->Submit(client, host, Decoded(1));
  EXPECT_EQ(client->Await(1)[0].outcome, AppendResult::Outcome::kDurable);
  EXPECT_TRUE(committer_->healthy());
  committer_.reset();
  SetLogSinkForTest(nullptr);
  EXPECT_EQ(health_, (std::vector<bool>{false, true}));
  int errors = 0;
  for (const std::string& line : lines) errors += line.find("no space left") != line.npos;
  EXPECT_EQ(errors, 1);
}

TEST_F(CommitterTest, StoppingWritesWhatIsQueued) {
  Start(absl::Seconds(60));
  auto client = std::make_shared<Recorder>();
  HostNumber host = Host("h");
  for (uint64_t seq = 1; seq <= 100; ++seq) committer_->Submit(client, host, Decoded(seq));
  bool task_ran = false;
  committer_->Run([&] { task_ran = true; });
  committer_.reset();
  EXPECT_EQ(client->Await(100).size(), 100u);
  EXPECT_TRUE(task_ran);
  EXPECT_EQ(*store_.DurableSeq(host, kSampleEpoch), 100u);
}

TEST_F(CommitterTest, TasksDoNotHoldUpBatches) {
  Start();
  auto client = std::make_shared<Recorder>();
  HostNumber host = Host("h");
  std::atomic<int> ran{0};
  for (int i = 0; i < 1000; ++i) {
    committer_->Run([&] {
      absl::SleepFor(absl::Milliseconds(1));
      ++ran;
    });
  }
  committer_->Submit(client, host, Decoded(1));
  client->Await(1);
  EXPECT_LT(ran, 1000);
  committer_.reset();
  EXPECT_EQ(ran, 1000);
}

}  // namespace
}  // namespace fleetblame::aggregator
