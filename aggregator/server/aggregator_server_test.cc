// SPDX-License-Identifier: Apache-2.0
//
// The aggregator as a whole, with its real store: what an agent, an operator and a person asking
// see.
#include "aggregator/server/aggregator_server.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "aggregator/ingest/testing/sample_batch.h"
#include "aggregator/ingest/testing/scripted_agent.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "proto/fleetblame/v1/control.grpc.pb.h"
#include "proto/fleetblame/v1/query.grpc.pb.h"

namespace fleetblame::aggregator {
namespace {

class AggregatorServerTest : public testing::Test {
 protected:
  AggregatorServerTest() {
    directory_ =
        testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    config_.listen = "127.0.0.1:0";
    config_.metrics_address = "127.0.0.1:0";
    config_.data_dir = directory_ + "/store";
    config_.memory_limit_bytes = 256 << 20;
  }

  void Start() {
    StartError error;
    server_ = AggregatorServer::Start(config_, &error);
    ASSERT_NE(server_, nullptr) << error.status;
  }
  std::shared_ptr<grpc::Channel> Channel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  v1::TopResponse Top(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::TopRequest request;
    request.mutable_range()->set_start_unix_ns(absl::ToUnixNanos(absl::Now() - absl::Hours(3)));
    request.add_by(v1::DIMENSION_COMM);
    v1::TopResponse response;
    grpc::Status status = v1::Query::NewStub(channel)->Top(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  std::string directory_;
  ServerConfig config_;
  std::unique_ptr<AggregatorServer> server_;
};

TEST_F(AggregatorServerTest, WhatAnAgentSentIsFoundEvenAfterARestart) {
  Start();
  {
    ScriptedAgent agent(Channel());
    ASSERT_TRUE(agent.Register(SampleHello()).has_value());
    for (uint64_t seq = 1; seq <= 10; ++seq) agent.Send(SampleBatch(seq, 5));
    ASSERT_TRUE(agent.AwaitAck(10));
  }
  v1::TopResponse before = Top(Channel());
  ASSERT_EQ(before.rows_size(), 1);
  EXPECT_EQ(before.rows(0).key(0).text(), "postgres");
  EXPECT_EQ(before.rows(0).metrics().ios(), 10u * (10 + 11 + 12 + 13 + 14));

  server_.reset();
  Start();
  EXPECT_EQ(Top(Channel()).rows(0).metrics().ios(), before.rows(0).metrics().ios());
  ScriptedAgent agent(Channel());
  auto ack = agent.Register(SampleHello());
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->durable_seq(), 10u);
}

TEST_F(AggregatorServerTest, ASecondOneOnTheSameStoreIsRefused) {
  Start();
  StartError error;
  EXPECT_EQ(AggregatorServer::Start(config_, &error), nullptr);
  EXPECT_EQ(error.exit_code, kExitStore);
  EXPECT_FALSE(error.status.message().empty());
}

TEST_F(AggregatorServerTest, APortInUseIsRefused) {
  Start();
  ServerConfig other = config_;
  other.data_dir = directory_ + "/other";
  other.listen = "127.0.0.1:" + std::to_string(server_->port());
  StartError error;
  EXPECT_EQ(AggregatorServer::Start(other, &error), nullptr);
  EXPECT_EQ(error.exit_code, kExitListen);
}

TEST_F(AggregatorServerTest, DirectivesReachConnectedAndLaterAgents) {
  Start();
  ScriptedAgent agent(Channel());
  auto hello_ack = agent.Register(SampleHello());
  ASSERT_TRUE(hello_ack.has_value());
  EXPECT_FALSE(hello_ack->directives().has_window_ns());

  auto control = v1::Control::NewStub(Channel());
  v1::SetDirectivesRequest request;
  request.set_name("slow");
  request.set_selector("{role=\"db\"}");
  request.mutable_directives()->set_window_ns(30'000'000'000);
  request.mutable_directives()->mutable_devices()->add_patterns("!loop*");
  v1::SetDirectivesResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(control->SetDirectives(&context, request, &response).ok());
  }
  EXPECT_EQ(response.hosts_matched(), 1u);
  auto directives = agent.ReceiveDirectives();
  ASSERT_TRUE(directives.has_value());
  EXPECT_EQ(directives->window_ns(), 30'000'000'000u);
  EXPECT_EQ(directives->devices().patterns(0), "!loop*");
  EXPECT_GE(directives->revision(), response.revision());

  server_.reset();
  Start();
  ScriptedAgent later(Channel());
  hello_ack = later.Register(SampleHello("other-host", 5));
  ASSERT_TRUE(hello_ack.has_value());
  EXPECT_EQ(hello_ack->directives().window_ns(), 30'000'000'000u);

  control = v1::Control::NewStub(Channel());
  request.clear_directives();
  {
    grpc::ClientContext context;
    ASSERT_TRUE(control->SetDirectives(&context, request, &response).ok());
  }
  EXPECT_FALSE(later.ReceiveDirectives()->has_window_ns());
  request.set_selector("{role=");
  grpc::ClientContext context;
  EXPECT_EQ(control->SetDirectives(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(AggregatorServerTest, TraceGoesFromAgentToThoseWhoWatch) {
  Start();
  ScriptedAgent agent(Channel());
  ASSERT_TRUE(agent.Register(SampleHello()).has_value());
  auto query = v1::Query::NewStub(Channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::TraceRequest request;
  request.set_max_duration_ns(20'000'000'000);
  auto stream = query->Trace(&context, request);
  auto directives = agent.ReceiveDirectives();
  ASSERT_TRUE(directives.has_value());
  ASSERT_TRUE(directives->has_trace());
  v1::TraceEvents events;
  events.set_trace_id(directives->trace().trace_id());
  events.add_events()->set_device("sda");
  agent.Send(events);
  v1::TraceResponse response;
  bool seen = false;
  while (!seen && stream->Read(&response)) seen = response.events_size() > 0;
  EXPECT_TRUE(seen);
  context.TryCancel();
  while (stream->Read(&response)) {
  }
  stream->Finish();
  // When nobody watches any more, the agent is told to stop.
  directives = agent.ReceiveDirectives();
  ASSERT_TRUE(directives.has_value());
  EXPECT_FALSE(directives->has_trace());
}

// The standard health service, by its bytes: field 1 of the answer is 1 for SERVING, 2 for not.
char HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  std::string request = service.empty() ? "" : std::string("\x0a") + char(service.size()) + service;
  grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1), out;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                   grpc::internal::RpcMethod::NORMAL_RPC, channel);
  grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer,
                                                          grpc::ByteBuffer, grpc::ByteBuffer>(
      channel.get(), method, &context, in, &out);
  std::vector<grpc::Slice> slices;
  if (!status.ok() || !out.Dump(&slices).ok() || slices.empty() || slices[0].size() < 2) return 0;
  return static_cast<char>(slices[0].begin()[1]);
}

TEST_F(AggregatorServerTest, HealthIsServed) {
  Start();
  EXPECT_EQ(HealthOf(Channel(), ""), 1);
  EXPECT_EQ(HealthOf(Channel(), "fleetblame.v1.Collector"), 1);
  EXPECT_EQ(HealthOf(Channel(), "fleetblame.v1.Query"), 1);
  EXPECT_EQ(HealthOf(Channel(), "no.such.Service"), 0);
}

TEST_F(AggregatorServerTest, ShutDownEndsStreamsAndIsIdempotent) {
  Start();
  ScriptedAgent agent(Channel());
  ASSERT_TRUE(agent.Register(SampleHello()).has_value());
  std::thread stopping([&] { server_->ShutDown(); });
  EXPECT_EQ(agent.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  stopping.join();
  server_->ShutDown();
}

TEST_F(AggregatorServerTest, BadSettingsAreRefusedWithTheirExitCode) {
  StartError error;
  ServerConfig config = config_;
  config.retention_ns[0] = UINT64_MAX / 2;
  EXPECT_EQ(AggregatorServer::Start(config, &error), nullptr);
  EXPECT_EQ(error.exit_code, kExitUsage);
  config = config_;
  std::ofstream(directory_ + "/file") << "x";
  config.data_dir = directory_ + "/file";
  EXPECT_EQ(AggregatorServer::Start(config, &error), nullptr);
  EXPECT_EQ(error.exit_code, kExitStore);
  config = config_;
  config.tls_cert = config.tls_key = directory_ + "/file";
  EXPECT_EQ(AggregatorServer::Start(config, &error), nullptr);
  EXPECT_EQ(error.exit_code, kExitTls);
  config = config_;
  config.metrics_address = "nonsense";
  EXPECT_EQ(AggregatorServer::Start(config, &error), nullptr);
  EXPECT_EQ(error.exit_code, kExitListen);
}

}  // namespace
}  // namespace fleetblame::aggregator
