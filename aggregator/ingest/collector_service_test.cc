// SPDX-License-Identifier: Apache-2.0
//
// Every rule of collector.proto, with a real gRPC server and a scripted agent over a store in
// memory.
#include "aggregator/ingest/collector_service.h"

#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "aggregator/ingest/testing/sample_batch.h"
#include "aggregator/ingest/testing/scripted_agent.h"
#include "aggregator/store/testing/fake_store.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

class FixedDirectives : public DirectiveSource {
 public:
  v1::Directives For(const HostRecord& host) const override {
    absl::MutexLock lock(&mu_);
    v1::Directives directives = directives_;
    if (auto trace = hub_->DirectiveFor(host.host_id)) *directives.mutable_trace() = *trace;
    return directives;
  }
  void Set(uint64_t revision, uint64_t window_ns) {
    absl::MutexLock lock(&mu_);
    directives_.set_revision(revision);
    directives_.set_window_ns(window_ns);
  }
  TraceHub* hub_ = nullptr;

 private:
  mutable absl::Mutex mu_;
  v1::Directives directives_;
};

class CollectorTest : public testing::Test {
 protected:
  CollectorTest() {
    directives_.hub_ = hub_.get();
    directives_.Set(10, 5'000'000'000);
  }
  ~CollectorTest() override { Stop(); }

  void Start() {
    collector_ = CollectorService::Create(&store_, hub_.get(), &directives_, &metrics_, options_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(collector_->max_receive_bytes());
    builder.RegisterService(collector_->service());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  void Stop() {
    if (collector_ == nullptr) return;
    collector_->ShutDown(absl::Seconds(5));
    server_->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    server_.reset();
    collector_.reset();
  }
  std::shared_ptr<grpc::Channel> NewChannel() {
    grpc::ChannelArguments arguments;
    // A channel of its own, not a shared connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  }
  std::unique_ptr<ScriptedAgent> NewAgent() {
    return std::make_unique<ScriptedAgent>(NewChannel());
  }
  std::unique_ptr<ScriptedAgent> Registered(const std::string& host_id = "host-1",
                                            uint64_t epoch = kSampleEpoch) {
    auto agent = NewAgent();
    EXPECT_TRUE(agent->Register(SampleHello(host_id, epoch)).has_value());
    return agent;
  }
  uint64_t Durable() {
    auto hosts = store_.NewReadView()->Hosts();
    return hosts.empty() ? 0 : *store_.DurableSeq(hosts[0].number, kSampleEpoch);
  }

  FakeStore store_;
  std::unique_ptr<TraceHub> hub_ = TraceHub::Create({});
  FixedDirectives directives_;
  IngestMetrics metrics_{std::make_shared<prometheus::Registry>()};
  CollectorService::Options options_;
  std::unique_ptr<CollectorService> collector_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// ---- Hello

TEST_F(CollectorTest, HelloIsAnsweredWithWhereThingsStand) {
  Start();
  auto agent = NewAgent();
  auto ack = agent->Register(SampleHello());
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->durable_seq(), 0u);
  EXPECT_EQ(ack->dictionary_epoch(), store_.dictionary_epoch());
  EXPECT_EQ(ack->max_message_bytes(), options_.limits.max_message_bytes);
  EXPECT_EQ(ack->credit_bytes(), options_.limits.credit_bytes);
  EXPECT_EQ(ack->directives().revision(), 10u);
  double lifetime_s = static_cast<double>(ack->stream_lifetime_ns()) / 1e9;
  EXPECT_GE(lifetime_s, 3600 * 0.9);
  EXPECT_LE(lifetime_s, 3600 * 1.1);
  EXPECT_NEAR(static_cast<double>(ack->realtime_unix_ns()),
              static_cast<double>(absl::GetCurrentTimeNanos()), 5e9);
  auto hosts = store_.NewReadView()->Hosts();
  ASSERT_EQ(hosts.size(), 1u);
  EXPECT_EQ(hosts[0].hostname, "host-1.example");
  EXPECT_EQ(hosts[0].labels.at("role"), "db");
  EXPECT_LT(std::abs(hosts[0].clock_skew_ns), 5'000'000'000);
  EXPECT_TRUE(hub_->IsConnected("host-1"));
}

TEST_F(CollectorTest, SkewIsNoted) {
  Start();
  v1::Hello hello = SampleHello();
  hello.set_realtime_unix_ns(hello.realtime_unix_ns() - 3'600'000'000'000);
  ASSERT_TRUE(NewAgent()->Register(hello).has_value());
  EXPECT_NEAR(static_cast<double>(store_.NewReadView()->Hosts()[0].clock_skew_ns), 3.6e12, 5e9);
  EXPECT_EQ(metrics_.skewed_hellos.Value(), 1);
}

TEST_F(CollectorTest, BadHelloIsFailedPrecondition) {
  Start();
  v1::Hello hello = SampleHello();
  hello.set_protocol_version(7);
  auto agent = NewAgent();
  agent->Send(hello);
  grpc::Status status = agent->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "version 7"));
}

TEST_F(CollectorTest, FirstMessageMustBeHello) {
  Start();
  auto agent = NewAgent();
  agent->Send(SampleBatch(1));
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Durable(), 0u);
}

TEST_F(CollectorTest, SilenceInsteadOfHelloEnds) {
  options_.limits.hello_timeout = absl::Milliseconds(300);
  Start();
  auto agent = NewAgent();
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(CollectorTest, StoreTroubleAtHelloIsUnavailable) {
  Start();
  store_.FailWrites(absl::ResourceExhaustedError("no space left"));
  auto agent = NewAgent();
  agent->Send(SampleHello());
  grpc::Status status = agent->Finish();
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAVAILABLE ||
              status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(hub_->IsConnected("host-1"));
}

// ---- batches and acknowledgements

TEST_F(CollectorTest, BatchesAreAcknowledgedWhenDurable) {
  Start();
  auto agent = Registered();
  for (uint64_t seq = 1; seq <= 20; ++seq) {
    agent->Send(seq % 2 == 0 ? Compressed(SampleBatch(seq, 50, false)) : SampleBatch(seq, 50));
  }
  EXPECT_TRUE(agent->AwaitAck(20));
  EXPECT_EQ(Durable(), 20u);
  EXPECT_EQ(metrics_.rows.Value(), 1000);
}

TEST_F(CollectorTest, RepetitionChangesNothing) {
  Start();
  auto agent = Registered();
  for (int i = 0; i < 3; ++i) {
    agent->Send(SampleBatch(1));
    EXPECT_TRUE(agent->AwaitAck(1));
  }
  EXPECT_EQ(metrics_.rows.Value(), 3);
}

TEST_F(CollectorTest, ReconnectResumes) {
  Start();
  {
    auto agent = Registered();
    agent->Send(SampleBatch(1));
    agent->Send(SampleBatch(2));
    ASSERT_TRUE(agent->AwaitAck(2));
    agent->Cancel();
  }
  auto agent = NewAgent();
  auto ack = agent->Register(SampleHello());
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->durable_seq(), 2u);
  agent->Send(SampleBatch(2));
  agent->Send(SampleBatch(3, 3, false));
  EXPECT_TRUE(agent->AwaitAck(3));
  EXPECT_EQ(metrics_.rows.Value(), 9);
}

TEST_F(CollectorTest, HalfCloseSettlesWhatWasSent) {
  Start();
  auto agent = Registered();
  for (uint64_t seq = 1; seq <= 50; ++seq) agent->Send(SampleBatch(seq));
  agent->WritesDone();
  EXPECT_TRUE(agent->AwaitAck(50));
  EXPECT_TRUE(agent->Finish().ok());
  EXPECT_EQ(Durable(), 50u);
}

TEST_F(CollectorTest, MissingSeqMeansRegister) {
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1));
  agent->Send(SampleBatch(3));
  agent->Send(SampleBatch(4));
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->seq(), 3u);
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_REGISTER);
  // On the same stream, too.
  auto ack = agent->Register(SampleHello());
  ASSERT_TRUE(ack.has_value());
  agent->Send(SampleBatch(2));
  agent->Send(SampleBatch(3));
  EXPECT_TRUE(agent->AwaitAck(3));
}

TEST_F(CollectorTest, HelloMayNotChangeWhoItIs) {
  Start();
  auto agent = Registered();
  agent->Send(SampleHello("host-2"));
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(CollectorTest, AnotherSpoolsBatchMeansRegister) {
  Start();
  auto agent = Registered();
  v1::Batch batch = SampleBatch(1);
  batch.set_spool_epoch(1);
  agent->Send(batch);
  EXPECT_EQ(agent->ReceiveReject()->action(), v1::Reject::ACTION_REGISTER);
}

TEST_F(CollectorTest, WhatTheAgentLostBecomesAGap) {
  Start();
  {
    auto agent = Registered();
    agent->Send(SampleBatch(1));
    ASSERT_TRUE(agent->AwaitAck(1));
  }
  auto agent = NewAgent();
  v1::Hello hello = SampleHello();
  hello.set_first_spooled_seq(5);
  hello.set_last_spooled_seq(6);
  ASSERT_EQ(agent->Register(hello)->durable_seq(), 1u);
  agent->Send(SampleBatch(5));
  agent->Send(SampleBatch(6));
  EXPECT_TRUE(agent->AwaitAck(6));
  auto view = store_.NewReadView();
  HostNumber host = view->Hosts()[0].number;
  ScanRange all{0, UINT64_MAX};
  auto gaps = *view->Gaps(std::span(&host, 1), all);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].gap.cause(), "missing_batches");
  EXPECT_EQ(gaps[0].gap.batches(), 3u);
}

TEST_F(CollectorTest, ANewStoreTakesAnOldAgent) {
  Start();
  auto agent = NewAgent();
  v1::Hello hello = SampleHello();
  hello.set_first_spooled_seq(500);
  hello.set_last_spooled_seq(501);
  ASSERT_EQ(agent->Register(hello)->durable_seq(), 0u);
  // Malformed, and the first after the skip: the replacement must get through all the same.
  v1::Batch bad = SampleBatch(500);
  bad.set_row_count(99);
  agent->Send(bad);
  EXPECT_EQ(agent->ReceiveReject()->action(), v1::Reject::ACTION_DROP);
  agent->Send(SampleBatch(500, 0));
  agent->Send(SampleBatch(501));
  EXPECT_TRUE(agent->AwaitAck(501));
}

// ---- rejects

TEST_F(CollectorTest, MalformedBatchIsDroppedAndReplaced) {
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1));
  v1::Batch bad = SampleBatch(2);
  bad.set_rows("not a row block");
  agent->Send(bad);
  agent->Send(SampleBatch(3));  // must not be taken
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->seq(), 2u);
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_DROP);
  EXPECT_FALSE(reject->reason().empty());
  v1::Batch replacement;
  replacement.set_seq(2);
  replacement.set_spool_epoch(kSampleEpoch);
  replacement.set_dictionary_id(kSampleDictionary);
  replacement.add_gaps()->set_cause("rejected");
  agent->Send(replacement);
  agent->Send(SampleBatch(3));
  EXPECT_TRUE(agent->AwaitAck(3));
  EXPECT_EQ(metrics_.rows.Value(), 6);
}

TEST_F(CollectorTest, InvalidUtf8NamesTheBatch) {
  Start();
  auto agent = Registered();
  v1::AgentMessage message;
  *message.mutable_batch() = SampleBatch(1);
  std::string bytes = message.SerializeAsString();
  bytes[bytes.find("postgres")] = '\xff';
  agent->SendBytes(bytes);
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->seq(), 1u);
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_DROP);
  agent->Send(SampleBatch(1));
  EXPECT_TRUE(agent->AwaitAck(1));
}

TEST_F(CollectorTest, TooLargeMeansSplit) {
  options_.limits.max_message_bytes = 64 << 10;
  Start();
  auto agent = Registered();
  v1::Batch large = SampleBatch(1);
  large.mutable_losses(0)->set_name(std::string(70 << 10, 'x'));
  agent->Send(large);
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_SPLIT);
  agent->Send(SampleBatch(1));
  EXPECT_TRUE(agent->AwaitAck(1));
}

TEST_F(CollectorTest, MuchTooLargeEndsTheStream) {
  options_.limits.max_message_bytes = 64 << 10;
  Start();
  auto agent = Registered();
  agent->SendBytes(std::string(1 << 20, 'x'));
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(CollectorTest, DiskFullMeansRetryAndNothingIsAcknowledged) {
  Start();
  auto agent = Registered();
  store_.FailWrites(absl::ResourceExhaustedError("no space left on device"));
  agent->Send(SampleBatch(1));
  agent->Send(SampleBatch(2));
  auto message = agent->Receive();
  ASSERT_TRUE(message.has_value());
  ASSERT_TRUE(message->has_reject()) << message->ShortDebugString();
  EXPECT_EQ(message->reject().seq(), 1u);
  EXPECT_EQ(message->reject().action(), v1::Reject::ACTION_RETRY);
  EXPECT_GT(message->reject().retry_after_ns(), 0u);
  store_.FailWrites(absl::OkStatus());
  agent->Send(SampleBatch(1));
  agent->Send(SampleBatch(2));
  EXPECT_TRUE(agent->AwaitAck(2));
  EXPECT_EQ(metrics_.rows.Value(), 6);
}

TEST_F(CollectorTest, RandomStoreTroubleLosesNothing) {
  Start();
  std::mt19937 random(7);
  auto agent = Registered();
  uint64_t durable = 0;
  for (int round = 0; round < 60; ++round) {
    bool fails = random() % 2 == 0;
    store_.FailWrites(fails ? absl::UnavailableError("injected") : absl::OkStatus());
    for (uint64_t seq = durable + 1; seq <= durable + 5; ++seq) agent->Send(SampleBatch(seq));
    uint64_t goal = durable + 5;
    while (durable < goal) {
      auto message = agent->Receive();
      ASSERT_TRUE(message.has_value());
      if (message->has_ack()) durable = std::max(durable, message->ack().durable_seq());
      if (message->has_reject()) {
        ASSERT_EQ(message->reject().action(), v1::Reject::ACTION_RETRY)
            << message->ShortDebugString();
        store_.FailWrites(absl::OkStatus());
        for (uint64_t seq = durable + 1; seq <= goal; ++seq) agent->Send(SampleBatch(seq));
      }
    }
  }
  EXPECT_EQ(Durable(), durable);
  EXPECT_EQ(metrics_.rows.Value(), static_cast<double>(3 * durable));
}

TEST_F(CollectorTest, CreditsAreEnforced) {
  options_.limits.max_message_bytes = 64 << 10;
  options_.limits.credit_bytes = 64 << 10;
  options_.limits.definitions_timeout = absl::Seconds(20);
  Start();
  auto agent = Registered();
  // The first one waits for definitions, so nothing is acknowledged meanwhile.
  for (uint64_t seq = 1; seq <= 200; ++seq) {
    if (!agent->Send(SampleBatch(seq, 100, false))) break;
  }
  grpc::Status status = agent->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

// ---- definitions

TEST_F(CollectorTest, MissingDefinitionsAreAskedFor) {
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1, 3, false));
  agent->Send(SampleBatch(2, 3, false));
  auto need = agent->ReceiveNeed();
  ASSERT_TRUE(need.has_value());
  EXPECT_EQ(need->dictionary_id(), kSampleDictionary);
  EXPECT_EQ(need->intents_size(), 1);
  EXPECT_EQ(Durable(), 0u);
  agent->Send(SampleDefinitions());
  EXPECT_TRUE(agent->AwaitAck(2));
}

TEST_F(CollectorTest, DefinitionsInTwoParts) {
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1, 3, false));
  ASSERT_TRUE(agent->ReceiveNeed().has_value());
  v1::Definitions first = SampleDefinitions(), second = SampleDefinitions();
  first.clear_files();
  second.clear_intents();
  second.clear_actors();
  second.clear_devices();
  agent->Send(first);
  agent->Send(second);
  EXPECT_TRUE(agent->AwaitAck(1));
}

TEST_F(CollectorTest, WhatNobodyKnowsIsDropped) {
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1, 3, false));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(agent->ReceiveNeed().has_value());
    v1::Definitions nothing;
    nothing.set_dictionary_id(kSampleDictionary);
    agent->Send(nothing);
  }
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_DROP);
  agent->Send(SampleBatch(1, 0));
  EXPECT_TRUE(agent->AwaitAck(1));
}

TEST_F(CollectorTest, UnansweredNeedMeansRetry) {
  options_.limits.definitions_timeout = absl::Milliseconds(300);
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1, 3, false));
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_RETRY);
  agent->Send(SampleBatch(1));
  EXPECT_TRUE(agent->AwaitAck(1));
}

TEST_F(CollectorTest, EndlessDefinitionsAreSlowedDown) {
  options_.limits.definitions_burst = 10;
  options_.limits.definitions_per_second = 20;
  Start();
  auto agent = Registered();
  uint64_t seq = 1;
  std::optional<v1::Reject> reject;
  for (; seq <= 10 && !reject; ++seq) {
    agent->Send(SampleBatch(seq));
    auto message = agent->Receive();
    ASSERT_TRUE(message.has_value());
    if (message->has_reject()) reject = message->reject();
  }
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_RETRY);
  absl::SleepFor(absl::Nanoseconds(reject->retry_after_ns()) + absl::Milliseconds(50));
  agent->Send(SampleBatch(reject->seq()));
  EXPECT_TRUE(agent->AwaitAck(reject->seq()));
}

TEST_F(CollectorTest, MalformedDefinitionsEndTheStream) {
  Start();
  auto agent = Registered();
  v1::Definitions bad = SampleDefinitions();
  (*bad.mutable_intents())[5].set_intent_id("x");
  agent->Send(bad);
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// ---- one stream a host

TEST_F(CollectorTest, AnotherAgentOfTheSameHostIsRefused) {
  Start();
  auto first = Registered();
  auto second = NewAgent();
  second->Send(SampleHello("host-1", 99));
  EXPECT_EQ(second->Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  first->Send(SampleBatch(1));
  EXPECT_TRUE(first->AwaitAck(1));
  first.reset();
  // Once the first is gone the second may come.
  bool let_in = false;
  for (int i = 0; i < 100 && !let_in; ++i) {
    auto third = NewAgent();
    third->Send(SampleHello("host-1", 99));
    let_in = third->ReceiveHelloAck().has_value();
    if (!let_in) absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(let_in);
}

TEST_F(CollectorTest, TheSameAgentTakesOver) {
  Start();
  auto half_open = Registered();
  half_open->Send(SampleBatch(1));
  ASSERT_TRUE(half_open->AwaitAck(1));
  auto fresh = NewAgent();
  auto ack = fresh->Register(SampleHello());
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->durable_seq(), 1u);
  EXPECT_EQ(half_open->Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  fresh->Send(SampleBatch(2));
  EXPECT_TRUE(fresh->AwaitAck(2));
  EXPECT_TRUE(hub_->IsConnected("host-1"));
}

TEST_F(CollectorTest, AdmissionLimit) {
  options_.limits.max_streams = 2;
  Start();
  auto a = Registered("a"), b = Registered("b");
  auto c = NewAgent();
  c->Send(SampleHello("c"));
  EXPECT_EQ(c->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(metrics_.refused_admission.Value(), 1);
}

// ---- the end of a stream

TEST_F(CollectorTest, LifetimeEndsWithOkAfterSettling) {
  options_.limits.stream_lifetime = absl::Milliseconds(700);
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1));
  EXPECT_TRUE(agent->AwaitAck(1));
  EXPECT_TRUE(agent->Finish().ok());
}

TEST_F(CollectorTest, ShutdownSettlesAndSaysUnavailable) {
  options_.committer.linger = absl::Milliseconds(200);
  Start();
  auto agent = Registered();
  for (uint64_t seq = 1; seq <= 10; ++seq) agent->Send(SampleBatch(seq));
  // Let them arrive; what is only in the socket is the agent's to send again.
  absl::SleepFor(absl::Milliseconds(100));
  std::thread stopping([&] { collector_->ShutDown(absl::Seconds(5)); });
  EXPECT_TRUE(agent->AwaitAck(10));
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  stopping.join();
  auto late = NewAgent();
  EXPECT_EQ(late->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(CollectorTest, APeerThatDoesNotReadCannotHoldTheEndUp) {
  options_.limits.stream_lifetime = absl::Milliseconds(300);
  options_.limits.finish_timeout = absl::Milliseconds(300);
  Start();
  auto agent = Registered();
  agent->Send(SampleBatch(1, 3, false));  // waits for definitions that never come
  absl::Time begin = absl::Now();
  collector_->ShutDown(absl::Seconds(10));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

// ---- directives and trace mode

TEST_F(CollectorTest, ChangedDirectivesArePushed) {
  Start();
  auto agent = Registered();
  directives_.Set(11, 20'000'000'000);
  collector_->PushDirectivesToAll();
  auto directives = agent->ReceiveDirectives();
  ASSERT_TRUE(directives.has_value());
  EXPECT_EQ(directives->window_ns(), 20'000'000'000u);
  ASSERT_EQ(collector_->ConnectedHosts().size(), 1u);
  EXPECT_EQ(collector_->ConnectedHosts()[0]->host_id, "host-1");
}

TEST_F(CollectorTest, TraceEventsReachTheHub) {
  Start();
  auto agent = Registered();
  v1::TraceDirective want;
  want.set_max_duration_ns(60'000'000'000);
  absl::Mutex mu;
  bool ready = false;
  auto subscription = hub_->Subscribe({"host-1"}, want, [&] {
    absl::MutexLock lock(&mu);
    ready = true;
  });
  ASSERT_TRUE(subscription.ok());
  directives_.Set(12, 5'000'000'000);
  collector_->PushDirectives({"host-1"});
  auto directives = agent->ReceiveDirectives();
  ASSERT_TRUE(directives.has_value());
  ASSERT_NE(directives->trace().trace_id(), 0u);
  v1::TraceEvents events;
  events.set_trace_id(directives->trace().trace_id());
  events.add_events()->set_device("sda");
  agent->Send(events);
  {
    absl::MutexLock lock(&mu);
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&ready), absl::Seconds(10)));
  }
  auto chunk = (*subscription)->Take();
  ASSERT_TRUE(chunk.has_value());
  EXPECT_EQ(chunk->events[0].device(), "sda");
  // Batches are not disturbed.
  agent->Send(SampleBatch(1));
  EXPECT_TRUE(agent->AwaitAck(1));
}

// ---- pressure

TEST_F(CollectorTest, LittleMemoryIsSlowButLosesNothing) {
  options_.limits.inflight_bytes = 100'000;
  Start();
  constexpr int kAgents = 20;
  constexpr uint64_t kBatches = 30;
  std::vector<std::thread> threads;
  for (int i = 0; i < kAgents; ++i) {
    threads.emplace_back([&, i] {
      auto agent = Registered("host-" + std::to_string(i));
      for (uint64_t seq = 1; seq <= kBatches; ++seq) agent->Send(SampleBatch(seq, 100));
      EXPECT_TRUE(agent->AwaitAck(kBatches));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(metrics_.rows.Value(), kAgents * kBatches * 100.0);
}

TEST_F(CollectorTest, AHelloDoesNotWaitForMemoryThatBatchesHold) {
  options_.limits.inflight_bytes = 10'000;
  options_.limits.hello_timeout = absl::Seconds(1);
  Start();
  auto holder = Registered("host-1");
  auto waiter = Registered("host-2");
  holder->Send(SampleBatch(1, 100, /*with_definitions=*/false));
  ASSERT_TRUE(holder->ReceiveNeed().has_value());  // held until its definitions come
  waiter->Send(SampleBatch(1, 100));
  EXPECT_TRUE(NewAgent()->Register(SampleHello("host-3")).has_value());
}

TEST_F(CollectorTest, ManyStreamsNoThreadEach) {
  Start();
  auto channel = NewChannel();
  std::vector<std::unique_ptr<ScriptedAgent>> agents;
  for (int i = 0; i < 300; ++i) {
    agents.push_back(std::make_unique<ScriptedAgent>(channel));
    ASSERT_TRUE(agents.back()->Register(SampleHello("host-" + std::to_string(i))).has_value());
  }
  for (auto& agent : agents) agent->Send(SampleBatch(1));
  for (auto& agent : agents) EXPECT_TRUE(agent->AwaitAck(1));
  EXPECT_LT(metrics_.commit_batches.Collect().histogram.sample_count, 301u);
}

// ---- peers that mean no good

TEST_F(CollectorTest, GarbageIsInvalidArgument) {
  Start();
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"), std::string(1000, 'A'), std::string("\x0a\x05xx")}) {
    auto agent = NewAgent();
    agent->SendBytes(bytes);
    grpc::Status status = agent->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  }
  auto large = NewAgent();
  large->SendBytes(std::string(options_.limits.max_hello_bytes + 1, 'A'));
  EXPECT_EQ(large->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  auto agent = NewAgent();
  agent->SendBytes("");  // parses: no message at all
  EXPECT_EQ(agent->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

// Valid conversations with bits changed, from many short streams. The server must answer, keep
// running, and serve an honest agent afterwards.
TEST_F(CollectorTest, MutatedConversations) {
  options_.limits.hello_timeout = absl::Seconds(2);
  options_.limits.definitions_timeout = absl::Milliseconds(100);
  Start();
  std::mt19937 random(42);
  auto channel = NewChannel();
  for (int round = 0; round < 400; ++round) {
    ScriptedAgent agent(channel);
    std::string host_id = "fuzz-" + std::to_string(round % 7);
    bool honest_hello = random() % 4 != 0;
    std::vector<std::string> script;
    v1::AgentMessage message;
    *message.mutable_hello() = SampleHello(host_id);
    script.push_back(message.SerializeAsString());
    for (int i = 0; i < 6; ++i) {
      v1::Batch batch =
          SampleBatch(1 + random() % 8, static_cast<int>(random() % 10), random() % 2 == 0);
      if (random() % 2 == 0) batch = Compressed(std::move(batch));
      switch (random() % 4) {
        case 0:
          *message.mutable_definitions() = SampleDefinitions();
          break;
        case 1:
          message.mutable_trace_events()->set_trace_id(random());
          break;
        default:
          *message.mutable_batch() = std::move(batch);
      }
      script.push_back(message.SerializeAsString());
    }
    for (size_t i = 0; i < script.size(); ++i) {
      bool spoil = i == 0 ? !honest_hello : random() % 2 == 0;
      for (unsigned n = 0; spoil && n <= random() % 3; ++n) {
        script[i][random() % script[i].size()] ^= static_cast<char>(1 << random() % 8);
      }
      if (!agent.SendBytes(script[i])) break;
    }
    if (round % 5 == 0) {
      agent.Cancel();
    } else {
      agent.WritesDone();
    }
    agent.Finish();
  }
  auto agent = Registered("honest");
  for (uint64_t seq = 1; seq <= 5; ++seq) agent->Send(SampleBatch(seq));
  EXPECT_TRUE(agent->AwaitAck(5));
}

}  // namespace
}  // namespace fleetblame::aggregator
