// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/testing/query_fixture.h"

#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {

QueryFixture::QueryFixture(QueryOptions options, TraceHub::Limits hub_limits)
    : hub_(TraceHub::Create(hub_limits)) {
  if (!options.now_unix_ns) options.now_unix_ns = [this] { return now; };
  service_ = CreateQueryService(&store_, hub_.get(), options);
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(-1);
  stub_ = v1::Query::NewStub(server_->InProcessChannel(args));
}

QueryFixture::~QueryFixture() {
  stub_.reset();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

HostNumber QueryFixture::Host(const std::string& host_id, std::map<std::string, std::string> labels,
                              const std::string& kernel, int64_t skew_ns) {
  HostRecord record;
  record.host_id = host_id;
  record.hostname = host_id + ".example";
  record.labels = std::move(labels);
  record.kernel_release = kernel;
  record.agent_version = "1.0";
  record.tracer = "bpf";
  record.first_seen_unix_ns = kDawn;
  record.last_seen_unix_ns = kDawn + kHour;
  record.clock_skew_ns = skew_ns;
  auto number = store_.UpsertHost(record);
  EXPECT_TRUE(number.ok());
  return *number;
}

IntentNumber QueryFixture::Intent(const std::string& hex, std::vector<std::string> frames,
                                  const std::string& modifier) {
  v1::Intent intent;
  intent.set_intent_id(absl::HexStringToBytes(hex + std::string(32 - hex.size(), '0')));
  for (std::string& f : frames) intent.add_frames(std::move(f));
  intent.set_modifier(modifier);
  intent.add_variants()->set_kernel_release("6.1.0");
  return store_.InternIntent(intent);
}

ActorNumber QueryFixture::Actor(const std::string& comm, const std::string& cgroup) {
  v1::Actor actor;
  actor.set_comm(comm);
  actor.set_cgroup(cgroup);
  return store_.InternActor(actor);
}

DeviceNumber QueryFixture::Device(const std::string& name, const std::string& serial) {
  v1::Device device;
  device.set_name(name);
  device.set_persistent_id(serial);
  return store_.InternDevice(device);
}

FileNumber QueryFixture::File(const std::string& path, uint64_t inode) {
  v1::File file;
  file.set_path(path);
  file.set_inode(inode);
  return store_.InternFile(file);
}

void QueryFixture::Prepare(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
}

BlockRow Write(IntentNumber dirtier, ActorNumber actor, DeviceNumber device, uint64_t ios,
               uint64_t bytes) {
  BlockRow row;
  row.dirtier_intent = dirtier;
  row.dirtier_actor = actor;
  row.device = device;
  row.operation = v1::OPERATION_WRITE;
  row.confidence = v1::CONFIDENCE_EXACT;
  row.ios = ios;
  row.bytes = bytes;
  return row;
}

v1::TimeRange Range(uint64_t start_unix_ns, uint64_t end_unix_ns) {
  v1::TimeRange range;
  range.set_start_unix_ns(start_unix_ns);
  range.set_end_unix_ns(end_unix_ns);
  return range;
}

}  // namespace fleetblame::aggregator
