// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/stream_registry.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

class Fake : public LiveStream {
 public:
  void Supersede() override { superseded = true; }
  void SendDirectives() override {}
  void Tick(absl::Time) override {}
  void ShutDown() override { shut_down = true; }
  bool superseded = false;
  bool shut_down = false;
};

class StreamRegistryTest : public testing::Test {
 protected:
  std::shared_ptr<Fake> NewStream() {
    auto stream = std::make_shared<Fake>();
    EXPECT_TRUE(registry_.Add(stream));
    return stream;
  }

  std::unique_ptr<TraceHub> hub_ = TraceHub::Create({});
  IngestMetrics metrics_{std::make_shared<prometheus::Registry>()};
  StreamRegistry registry_{3, hub_.get(), &metrics_};
  absl::Time now_ = absl::Now();
};

TEST_F(StreamRegistryTest, AdmitsSoManyAndNoMore) {
  auto a = NewStream();
  NewStream();
  NewStream();
  EXPECT_FALSE(registry_.Add(std::make_shared<Fake>()));
  registry_.Remove(a.get());
  EXPECT_TRUE(registry_.Add(std::make_shared<Fake>()));
}

TEST_F(StreamRegistryTest, SameSpoolTakesOverAnotherDoesNot) {
  auto old_one = NewStream(), new_one = NewStream(), stranger = NewStream();
  EXPECT_TRUE(registry_.Claim("h", 1, old_one, now_).ok());
  EXPECT_TRUE(hub_->IsConnected("h"));
  EXPECT_TRUE(absl::IsAlreadyExists(registry_.Claim("h", 2, stranger, now_)));
  EXPECT_FALSE(old_one->superseded);
  EXPECT_TRUE(registry_.Claim("h", 1, new_one, now_).ok());
  EXPECT_TRUE(old_one->superseded);
  // The late end of the old one takes nothing from the new one.
  registry_.Release("h", old_one.get());
  EXPECT_TRUE(hub_->IsConnected("h"));
  EXPECT_EQ(registry_.OfHosts({"h", "other"}).size(), 1u);
  registry_.Release("h", new_one.get());
  EXPECT_FALSE(hub_->IsConnected("h"));
  EXPECT_TRUE(registry_.Claim("h", 2, stranger, now_).ok());
}

TEST_F(StreamRegistryTest, ClaimingTwiceIsFine) {
  auto stream = NewStream();
  EXPECT_TRUE(registry_.Claim("h", 1, stream, now_).ok());
  EXPECT_TRUE(registry_.Claim("h", 1, stream, now_).ok());
  EXPECT_FALSE(stream->superseded);
}

TEST_F(StreamRegistryTest, TwoThatTakeOverInTurnAreNoticed) {
  auto a = NewStream(), b = NewStream();
  EXPECT_TRUE(registry_.Claim("h", 1, a, now_).ok());
  absl::Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    now_ += absl::Seconds(2);
    status = registry_.Claim("h", 1, i % 2 == 0 ? b : a, now_);
  }
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  now_ += absl::Minutes(2);
  EXPECT_TRUE(registry_.Claim("h", 1, std::make_shared<Fake>(), now_).ok());
}

TEST_F(StreamRegistryTest, ListsRegisteredHosts) {
  auto stream = NewStream();
  EXPECT_TRUE(registry_.Claim("h", 1, stream, now_).ok());
  EXPECT_TRUE(registry_.Hosts().empty());
  HostRecord host;
  host.host_id = "h";
  registry_.SetHost(std::make_shared<const HostRecord>(host), stream.get());
  ASSERT_EQ(registry_.Hosts().size(), 1u);
  EXPECT_EQ(registry_.Hosts()[0]->host_id, "h");
}

TEST_F(StreamRegistryTest, ShutDownTellsAllAndLetsNobodyIn) {
  auto stream = NewStream();
  registry_.ShutDown();
  EXPECT_TRUE(stream->shut_down);
  EXPECT_FALSE(registry_.Add(std::make_shared<Fake>()));
  EXPECT_FALSE(registry_.AwaitEmpty(absl::Milliseconds(1)));
  registry_.Remove(stream.get());
  EXPECT_TRUE(registry_.AwaitEmpty(absl::Milliseconds(1)));
}

}  // namespace
}  // namespace fleetblame::aggregator
