// SPDX-License-Identifier: Apache-2.0
//
// The client against an aggregator that misbehaves in every way: whatever it does, no batch is lost
// and none arrives twice.
#include "node-agent/stream/stream_client.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/intent/intent.h"
#include "common/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node-agent/compact/row_codec.h"
#include "node-agent/stream/testing/fake_collector.h"

namespace fleetblame::agent {
namespace {

using Peer = FakeCollector::Peer;

class StreamClientTest : public testing::Test {
 protected:
  StreamClientTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/stream-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    options_.identity.host_id = "host-1";
    options_.identity.labels = {{"role", "db"}};
    options_.first_backoff = absl::Milliseconds(5);
    options_.longest_backoff = absl::Milliseconds(50);
    OpenState();
  }

  ~StreamClientTest() override {
    client_.reset();
    collector_.Shutdown();
    std::filesystem::remove_all(directory_);
  }

  // Silences client and collector before the locals that their hooks use go out of scope.
  struct Quiet {
    explicit Quiet(StreamClientTest* test) : test(test) {}
    ~Quiet() {
      test->client_.reset();
      test->collector_.Shutdown();
    }
    StreamClientTest* const test;
  };

  void OpenState() {
    client_.reset();
    spool_.reset();
    dictionary_.reset();
    SpoolOptions spool;
    spool.directory = directory_ + "/spool";
    spool.boot_id = "boot-1";
    spool.sync = false;
    auto opened = Spool::Open(spool);
    ASSERT_TRUE(opened.ok()) << opened.status();
    spool_ = *std::move(opened);
    DictionaryOptions dictionary;
    dictionary.directory = directory_ + "/dictionary";
    dictionary.sync = false;
    auto made = Dictionary::Open(dictionary);
    ASSERT_TRUE(made.ok()) << made.status();
    dictionary_ = *std::move(made);
  }

  void StartClient() {
    options_.address = collector_.address();
    Session::Hooks hooks;
    hooks.on_directives = [this](const v1::Directives& directives) {
      absl::MutexLock lock(&mutex_);
      directives_.push_back(directives);
    };
    hooks.take_trace_events = [this]() -> std::optional<v1::TraceEvents> {
      absl::MutexLock lock(&mutex_);
      if (trace_events_.empty()) return std::nullopt;
      v1::TraceEvents events = std::move(trace_events_.back());
      trace_events_.pop_back();
      return events;
    };
    client_ = std::make_unique<StreamClient>(options_, spool_.get(), dictionary_.get(), hooks);
    client_->Start();
  }

  // Window n with `rows` rows of as many intents; its rows sum to bytes = n for each.
  void Append(uint64_t n, int rows = 1) {
    RowBlockBuilder builder;
    for (int i = 0; i < rows; ++i) {
      v1::Intent intent;
      intent.add_frames(absl::StrCat("function_number_", i, "_with_a_long_name"));
      intent.set_intent_id(ComputeIntentId(intent));
      BlockRow row;
      row.dirtier_intent = dictionary_->Number(intent);
      v1::Device device;
      device.set_name("sda");
      row.device = dictionary_->Number(device);
      row.operation = v1::OPERATION_WRITE;
      row.confidence = v1::CONFIDENCE_EXACT;
      row.ios = 1;
      row.bytes = n;
      builder.Add(row);
    }
    v1::Batch batch;
    batch.set_dictionary_id(dictionary_->current_id());
    batch.mutable_window()->set_start_boot_ns(n * 1'000'000'000);
    batch.mutable_window()->set_end_boot_ns((n + 1) * 1'000'000'000);
    batch.mutable_window()->set_realtime_offset_ns(1'700'000'000'000'000'000);
    EncodeRows(builder.Finish(), rows, &batch);
    ASSERT_TRUE(dictionary_->Persist().ok());
    std::vector<v1::Batch> batches;
    batches.push_back(std::move(batch));
    spool_->Append(std::move(batches));
    if (client_ != nullptr) client_->Notify();
  }

  // Sum of bytes of all rows that the collector took.
  uint64_t TakenBytes() {
    uint64_t sum = 0;
    for (const auto& [seq, batch] : collector_.Taken()) {
      auto block = DecodeRows(batch);
      EXPECT_TRUE(block.ok()) << block.status();
      if (!block.ok()) continue;
      for (const uint64_t bytes : block->bytes()) sum += bytes;
    }
    return sum;
  }

  bool Delivered() {
    uint64_t first = 0;
    uint64_t last = 0;
    spool_->Range(&first, &last);
    return last == 0;
  }

  bool WaitUntil(const std::function<bool()>& condition,
                 absl::Duration timeout = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + timeout;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  std::string directory_;
  FakeCollector collector_;
  StreamOptions options_;
  std::unique_ptr<Spool> spool_;
  std::unique_ptr<Dictionary> dictionary_;
  std::unique_ptr<StreamClient> client_;
  absl::Mutex mutex_;
  std::vector<v1::Directives> directives_;
  std::vector<v1::TraceEvents> trace_events_;
};

TEST_F(StreamClientTest, DeliversInOrderAndFrees) {
  collector_.Start();
  Append(1);
  StartClient();
  Append(2);
  ASSERT_TRUE(collector_.WaitForDurable(2));
  Append(3);
  ASSERT_TRUE(collector_.WaitForDurable(3));
  EXPECT_TRUE(WaitUntil([&] { return Delivered(); }));
  EXPECT_EQ(TakenBytes(), 1u + 2 + 3);
  EXPECT_EQ(collector_.out_of_order(), 0u);
  EXPECT_EQ(collector_.duplicates(), 0u);
  const v1::Hello hello = collector_.Hellos().at(0);
  EXPECT_EQ(hello.protocol_version(), 1u);
  EXPECT_EQ(hello.host_id(), "host-1");
  EXPECT_EQ(hello.spool_epoch(), spool_->epoch());
  EXPECT_EQ(hello.first_spooled_seq(), 1u);
  EXPECT_EQ(hello.labels().at("role"), "db");
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().connected; }));
}

TEST_F(StreamClientTest, DefinitionsAreSentUntilAcknowledgedAndNotAfter) {
  collector_.Start();
  StartClient();
  Append(1, 20);
  ASSERT_TRUE(collector_.WaitForDurable(1));
  ASSERT_TRUE(WaitUntil([&] { return Delivered(); }));
  Append(2, 20);
  ASSERT_TRUE(collector_.WaitForDurable(2));
  const auto taken = collector_.Taken();
  EXPECT_EQ(taken.at(1).definitions().intents().size(), 20u);
  EXPECT_EQ(taken.at(2).definitions().intents().size(), 0u);
  EXPECT_EQ(collector_.undefined(), 0u);
}

TEST_F(StreamClientTest, ABacklogDoesNotCarryTheSameDefinitionsOverAndOver) {
  for (uint64_t n = 1; n <= 30; ++n) Append(n, 40);
  collector_.Start();
  StartClient();
  ASSERT_TRUE(collector_.WaitForDurable(30));
  ASSERT_TRUE(WaitUntil([&] { return Delivered(); }));
  EXPECT_LE(client_->stats().session.definitions_sent, 2u * 41);
  EXPECT_EQ(collector_.undefined(), 0u);
}

TEST_F(StreamClientTest, ANewStoreGetsAllDefinitionsAgain) {
  collector_.Start();
  StartClient();
  Append(1, 5);
  ASSERT_TRUE(collector_.WaitForDurable(1));
  ASSERT_TRUE(WaitUntil([&] { return Delivered(); }));
  collector_.Shutdown();
  collector_.Forget(/*new_epoch=*/2);
  collector_.Start();
  Append(2, 5);
  ASSERT_TRUE(collector_.WaitForDurable(2));
  EXPECT_EQ(collector_.Taken().at(2).definitions().intents().size(), 5u);
  EXPECT_EQ(collector_.undefined(), 0u);
}

TEST_F(StreamClientTest, BatchesOfAnEarlierRunStillHaveTheirDefinitions) {
  Append(1, 7);
  OpenState();
  Append(2, 3);
  collector_.Start();
  StartClient();
  ASSERT_TRUE(collector_.WaitForDurable(2));
  EXPECT_EQ(collector_.undefined(), 0u);
  EXPECT_EQ(collector_.Taken().at(1).definitions().intents().size(), 7u);
}

TEST_F(StreamClientTest, AnAggregatorThatIsAwayGetsEverythingLater) {
  collector_.Start();
  collector_.Shutdown();
  StartClient();
  for (uint64_t n = 1; n <= 50; ++n) Append(n);
  ASSERT_TRUE(WaitUntil([&] { return client_->stats().connection_failures >= 3; }));
  EXPECT_THAT(client_->stats().last_error, testing::HasSubstr(collector_.address()));
  collector_.Start();
  ASSERT_TRUE(collector_.WaitForDurable(50));
  EXPECT_EQ(TakenBytes(), 50u * 51 / 2);
}

TEST_F(StreamClientTest, RestartsOfTheAggregatorLoseAndDoubleNothing) {
  collector_.Start();
  StartClient();
  uint64_t n = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 20; ++i) Append(++n);
    collector_.Shutdown();
    collector_.Start();
  }
  ASSERT_TRUE(collector_.WaitForDurable(n));
  EXPECT_EQ(TakenBytes(), n * (n + 1) / 2);
  EXPECT_TRUE(WaitUntil([&] { return Delivered(); }));
}

TEST_F(StreamClientTest, AnAckThatWasLostDoublesNothing) {
  // The batch is durable, but the stream breaks before the agent hears of it.
  std::atomic<bool> break_once = true;
  collector_.on_batch = [&](Peer*, const v1::Batch& batch) {
    if (batch.seq() != 3 || !break_once.exchange(false)) return false;
    collector_.set_durable_seq(3);
    // Without an answer; the test ends the stream below.
    return true;
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  for (uint64_t n = 1; n <= 3; ++n) Append(n);
  ASSERT_TRUE(collector_.WaitForDurable(3));
  collector_.Shutdown();
  collector_.Start();
  Append(4);
  ASSERT_TRUE(collector_.WaitForDurable(4));
  EXPECT_TRUE(WaitUntil([&] { return Delivered(); }));
  EXPECT_EQ(collector_.Taken().count(3), 0u);  // it was not sent again
}

TEST_F(StreamClientTest, RetryIsObeyedInOrder) {
  std::atomic<int> refused = 0;
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    if (batch.seq() >= 3 && refused < 3) {
      if (batch.seq() == 3) {
        ++refused;
        FakeCollector::SendReject(peer, 3, v1::Reject::ACTION_RETRY, absl::Milliseconds(20));
      }
      return true;  // what follows a rejected batch is not taken
    }
    return false;
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  for (uint64_t n = 1; n <= 6; ++n) Append(n);
  ASSERT_TRUE(collector_.WaitForDurable(6));
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(TakenBytes(), 21u);
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().session.rejects_retry == 3u; }));
}

TEST_F(StreamClientTest, SplitKeepsEveryRow) {
  std::atomic<int> splits = 0;
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    if (batch.row_count() <= 8) return false;
    ++splits;
    FakeCollector::SendReject(peer, batch.seq(), v1::Reject::ACTION_SPLIT);
    return true;
  };
  Quiet quiet(this);
  collector_.Start();
  Append(1, 2);
  Append(2, 50);
  Append(3, 2);
  StartClient();
  ASSERT_TRUE(WaitUntil([&] { return Delivered(); }));
  EXPECT_GT(splits, 0);
  EXPECT_EQ(TakenBytes(), 2u + 2 * 50 + 3 * 2);
  EXPECT_EQ(collector_.undefined(), 0u);
  for (const auto& [seq, batch] : collector_.Taken()) EXPECT_LE(batch.row_count(), 8u);
}

TEST_F(StreamClientTest, SmallMessagesAreMadeWithoutBeingAsked) {
  collector_.max_message_bytes = 4096;
  std::atomic<uint64_t> largest = 0;
  collector_.on_batch = [&](Peer*, const v1::Batch& batch) {
    largest = std::max<uint64_t>(largest, batch.ByteSizeLong());
    return false;
  };
  collector_.on_other = [&](Peer*, const v1::AgentMessage& message) {
    largest = std::max<uint64_t>(largest, message.ByteSizeLong());
  };
  Quiet quiet(this);
  collector_.Start();
  Append(1, 2000);
  StartClient();
  ASSERT_TRUE(WaitUntil([&] { return Delivered(); }));
  EXPECT_LE(largest, 4096u);
  EXPECT_EQ(TakenBytes(), 2000u);
  EXPECT_GT(collector_.SeparateDefinitions().size(), 5u);
  EXPECT_EQ(collector_.undefined(), 0u);
}

TEST_F(StreamClientTest, APoisonBatchIsSetAsideAndLeavesAGap) {
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    if (batch.seq() != 2 || batch.row_count() == 0) return false;
    FakeCollector::SendReject(peer, 2, v1::Reject::ACTION_DROP);
    return true;
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  for (uint64_t n = 1; n <= 4; ++n) Append(n);
  ASSERT_TRUE(collector_.WaitForDurable(4));
  const auto taken = collector_.Taken();
  ASSERT_EQ(taken.at(2).gaps_size(), 1);
  EXPECT_EQ(taken.at(2).gaps(0).cause(), "rejected");
  EXPECT_EQ(TakenBytes(), 1u + 3 + 4);
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().session.rejects_drop == 1u; }));
}

TEST_F(StreamClientTest, RegisterStartsOverWithHello) {
  std::atomic<bool> once = true;
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    if (batch.seq() != 2 || !once.exchange(false)) return false;
    FakeCollector::SendReject(peer, 2, v1::Reject::ACTION_REGISTER);
    return true;
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  for (uint64_t n = 1; n <= 4; ++n) Append(n);
  ASSERT_TRUE(collector_.WaitForDurable(4));
  EXPECT_GE(collector_.Hellos().size(), 2u);
  EXPECT_EQ(TakenBytes(), 10u);
}

TEST_F(StreamClientTest, RegisterForEverDoesNotSpin) {
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    FakeCollector::SendReject(peer, batch.seq(), v1::Reject::ACTION_REGISTER);
    return true;
  };
  options_.first_backoff = options_.longest_backoff = absl::Seconds(2);
  Quiet quiet(this);
  collector_.Start();
  Append(1);
  StartClient();
  absl::SleepFor(absl::Seconds(1));
  EXPECT_LE(collector_.Hellos().size(), 40u);
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().connection_failures >= 1u; }));
  EXPECT_FALSE(Delivered());
}

TEST_F(StreamClientTest, NeedIsAnswered) {
  std::atomic<int> asked = 0;
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    if (asked++ > 0) return false;
    v1::AggregatorMessage need;
    need.mutable_need()->set_dictionary_id(batch.dictionary_id());
    for (const auto& [number, intent] : batch.definitions().intents()) {
      need.mutable_need()->add_intents(number);
    }
    need.mutable_need()->add_devices(1);
    peer->Write(need);
    return true;
  };
  collector_.on_other = [&](Peer* peer, const v1::AgentMessage& message) {
    // The batch that waited is complete now.
    if (!message.has_definitions()) return;
    v1::AggregatorMessage ack;
    collector_.set_durable_seq(1);
    ack.mutable_ack()->set_durable_seq(1);
    peer->Write(ack);
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  Append(1, 3);
  ASSERT_TRUE(collector_.WaitForDurable(1));
  const auto definitions = collector_.SeparateDefinitions();
  ASSERT_EQ(definitions.size(), 1u);
  EXPECT_EQ(definitions[0].intents().size(), 3u);
  EXPECT_EQ(definitions[0].devices().at(1).name(), "sda");
}

TEST_F(StreamClientTest, AnAckForWhatWasNeverSentFreesNothing) {
  std::atomic<int> lies = 0;
  collector_.on_batch = [&](Peer* peer, const v1::Batch&) {
    if (lies++ > 2) return false;
    v1::AggregatorMessage ack;
    ack.mutable_ack()->set_durable_seq(1'000'000);
    peer->Write(ack);
    return true;
  };
  collector_.credit_bytes = 1;  // one batch at a time
  Quiet quiet(this);
  collector_.Start();
  for (uint64_t n = 1; n <= 5; ++n) Append(n);
  StartClient();
  ASSERT_TRUE(collector_.WaitForDurable(5));
  EXPECT_EQ(TakenBytes(), 15u);
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().session.protocol_errors >= 1u; }));
}

TEST_F(StreamClientTest, CreditsAreKept) {
  collector_.credit_bytes = 2000;
  std::atomic<uint64_t> waiting = 0;
  std::atomic<uint64_t> most = 0;
  absl::Mutex mutex;
  std::vector<v1::Batch> held;
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    absl::MutexLock lock(&mutex);
    held.push_back(batch);
    waiting += batch.ByteSizeLong();
    most = std::max<uint64_t>(most, waiting);
    // Answers only when the agent must have stopped.
    if (waiting < 1200) return true;
    for (const v1::Batch& one : held) collector_.Take(peer, one);
    held.clear();
    waiting = 0;
    return true;
  };
  Quiet quiet(this);
  collector_.Start();
  for (uint64_t n = 1; n <= 60; ++n) Append(n, 3);
  StartClient();
  WaitUntil([&] { return collector_.durable_seq() >= 50; });
  EXPECT_GE(collector_.durable_seq(), 50u);
  EXPECT_LE(most, 2200u);
}

TEST_F(StreamClientTest, SilenceIsNoticed) {
  options_.silence_timeout = absl::Milliseconds(300);
  std::atomic<int> seen = 0;
  collector_.on_batch = [&](Peer*, const v1::Batch&) { return ++seen <= 2; };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  Append(1);
  ASSERT_TRUE(collector_.WaitForDurable(1));
  EXPECT_GE(collector_.Hellos().size(), 2u);
}

TEST_F(StreamClientTest, NoAnswerToHelloIsNoticed) {
  options_.hello_timeout = absl::Milliseconds(200);
  std::atomic<int> seen = 0;
  collector_.on_hello = [&](Peer*, const v1::Hello&) { return ++seen <= 2; };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  Append(1);
  ASSERT_TRUE(collector_.WaitForDurable(1));
  EXPECT_GE(collector_.Hellos().size(), 3u);
}

TEST_F(StreamClientTest, GarbageAnswersDoNoHarm) {
  std::atomic<int> seen = 0;
  collector_.on_hello = [&](Peer* peer, const v1::Hello&) {
    v1::AggregatorMessage message;
    switch (seen++) {
      case 0:  // an Ack before HelloAck
        message.mutable_ack()->set_durable_seq(7);
        break;
      case 1:  // absurd numbers
        message.mutable_hello_ack()->set_durable_seq(UINT64_MAX);
        break;
      case 2:  // no message fits
        message.mutable_hello_ack()->set_max_message_bytes(1);
        break;
      case 3:  // nothing at all
        break;
      default:
        return false;
    }
    peer->Write(message);
    // Two HelloAcks are an error of the aggregator too.
    if (seen == 4) {
      message.mutable_hello_ack()->set_dictionary_epoch(1);
      peer->Write(message);
      peer->Write(message);
    }
    return true;
  };
  options_.hello_timeout = absl::Milliseconds(300);
  Quiet quiet(this);
  collector_.Start();
  for (uint64_t n = 1; n <= 5; ++n) Append(n);
  StartClient();
  ASSERT_TRUE(WaitUntil([&] { return Delivered(); }));
  EXPECT_EQ(TakenBytes(), 15u);
}

TEST_F(StreamClientTest, RefusalsAreTriedAgainWithTheReasonKept) {
  std::atomic<int> seen = 0;
  Quiet quiet(this);
  collector_.Start();
  collector_.end_status = grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "another agent streams");
  collector_.on_hello = [&](Peer* peer, const v1::Hello&) {
    if (seen++ > 0) return false;
    v1::AggregatorMessage message;
    message.mutable_hello_ack()->set_max_message_bytes(1);  // the agent hangs up
    peer->Write(message);
    return true;
  };
  StartClient();
  Append(1);
  ASSERT_TRUE(collector_.WaitForDurable(1));
}

TEST_F(StreamClientTest, AMissingRestOfTheAggregatorsHistoryIsNoObstacle) {
  // The store is new, the agent's spool begins at 4: Hello says so.
  collector_.Start();
  for (uint64_t n = 1; n <= 5; ++n) Append(n);
  spool_->MarkSent(3);
  spool_->Free(3);
  StartClient();
  ASSERT_TRUE(collector_.WaitForDurable(5));
  EXPECT_EQ(collector_.Hellos()[0].first_spooled_seq(), 4u);
  EXPECT_EQ(TakenBytes(), 9u);
}

TEST_F(StreamClientTest, DirectivesArriveAndOldOnesAreIgnored) {
  collector_.directives.set_revision(5);
  collector_.directives.set_window_ns(3'000'000'000);
  collector_.on_batch = [&](Peer* peer, const v1::Batch& batch) {
    for (const uint64_t revision : {4, 6}) {
      v1::AggregatorMessage message;
      message.mutable_directives()->set_revision(revision);
      peer->Write(message);
    }
    collector_.Take(peer, batch);
    return true;
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  Append(1);
  ASSERT_TRUE(collector_.WaitForDurable(1));
  ASSERT_TRUE(WaitUntil([&] {
    absl::MutexLock lock(&mutex_);
    return directives_.size() >= 2;
  }));
  absl::MutexLock lock(&mutex_);
  ASSERT_EQ(directives_.size(), 2u);
  EXPECT_EQ(directives_[0].revision(), 5u);
  EXPECT_EQ(directives_[0].window_ns(), 3'000'000'000u);
  EXPECT_EQ(directives_[1].revision(), 6u);
}

TEST_F(StreamClientTest, TraceEventsGoOut) {
  std::atomic<int> events = 0;
  collector_.on_other = [&](Peer*, const v1::AgentMessage& message) {
    events += message.trace_events().events_size();
  };
  Quiet quiet(this);
  collector_.Start();
  StartClient();
  {
    absl::MutexLock lock(&mutex_);
    v1::TraceEvents some;
    some.add_events();
    some.add_events();
    trace_events_.push_back(some);
  }
  client_->Notify();
  EXPECT_TRUE(WaitUntil([&] { return events == 2; }));
}

TEST_F(StreamClientTest, StopDeliversTheLastWindow) {
  collector_.Start();
  StartClient();
  ASSERT_TRUE(WaitUntil([&] { return client_->stats().connected; }));
  Append(1);
  EXPECT_TRUE(client_->Stop(absl::Seconds(5)));
  EXPECT_EQ(collector_.durable_seq(), 1u);
}

TEST_F(StreamClientTest, StopDoesNotWaitLongerThanToldTo) {
  collector_.Start();
  collector_.Shutdown();
  StartClient();
  Append(1);
  const absl::Time began = absl::Now();
  EXPECT_FALSE(client_->Stop(absl::Milliseconds(300)));
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
}

TEST_F(StreamClientTest, ProbeTellsWhatIsThere) {
  collector_.Start();
  EXPECT_TRUE(ProbeAggregator(collector_.address(), {}, absl::Seconds(5)).ok());
  const std::string address = collector_.address();
  collector_.Shutdown();
  const absl::Status status = ProbeAggregator(address, {}, absl::Seconds(5));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nothing listens there"));
}

}  // namespace
}  // namespace fleetblame::agent
