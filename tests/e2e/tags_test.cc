// SPDX-License-Identifier: Apache-2.0
//
// Tag waits from agents' streams to what a person reads, with the real aggregator and command line
// and streams whose sums are known: batches sent again after a broken stream and after the
// aggregator was killed count once, what is malformed is refused with the reason.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "aggregator/ingest/testing/scripted_agent.h"
#include "common/histogram.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "tests/e2e/fleet.h"

namespace fleetblame::testing {
namespace {

using aggregator::ScriptedAgent;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kEpoch = 5;
constexpr uint64_t kDictionary = 77;

// One host with a controller of four tags: sda waits, sdb holds three of them and sda one.
class TagHost {
 public:
  TagHost(std::string host, uint64_t waits_a_window, uint64_t wait_ns)
      : host_(std::move(host)), waits_(waits_a_window), wait_ns_(wait_ns) {
    first_unix_ns_ = static_cast<uint64_t>(absl::ToUnixNanos(absl::Now() - absl::Minutes(30)));
  }

  v1::Hello Hello() const {
    v1::Hello hello;
    hello.set_protocol_version(1);
    hello.set_host_id(host_);
    hello.set_hostname(host_);
    hello.set_boot_id("boot");
    hello.set_spool_epoch(kEpoch);
    hello.set_kernel_release("6.1.0");
    hello.set_tracer("bpf");
    hello.set_realtime_unix_ns(static_cast<uint64_t>(absl::GetCurrentTimeNanos()));
    hello.set_boottime_ns(1);
    return hello;
  }

  v1::Batch Batch(uint64_t seq) const {
    v1::Batch batch;
    batch.set_seq(seq);
    batch.set_spool_epoch(kEpoch);
    batch.set_dictionary_id(kDictionary);
    v1::Window* window = batch.mutable_window();
    window->set_start_boot_ns(first_unix_ns_ + seq * 10 * kSecond);
    window->set_end_boot_ns(window->start_boot_ns() + 10 * kSecond);
    window->set_boot_id("boot");
    *batch.mutable_definitions() = Definitions();
    AddTagWaits(batch.mutable_tag_waits());
    return batch;
  }

 private:
  static v1::Definitions Definitions() {
    v1::Definitions definitions;
    definitions.set_dictionary_id(kDictionary);
    for (auto [number, name, model] :
         {std::tuple{1u, "sda", "Fast SSD"}, {2u, "sdb", "Slow HDD"}}) {
      v1::Device& device = (*definitions.mutable_devices())[number];
      device.set_name(name);
      device.set_major(8);
      device.set_minor(number * 16);
      device.set_model(model);
    }
    v1::Intent& intent = (*definitions.mutable_intents())[1];
    intent.set_intent_id(std::string(16, '\x42'));
    intent.add_frames("blk_mq_submit_bio");
    intent.add_frames("ext4_file_read_iter");
    intent.add_frames("pread64");
    (*definitions.mutable_actors())[1].set_comm("postgres");
    return definitions;
  }

  void AddTagWaits(v1::TagWaits* out) const {
    v1::TagSet* set = out->add_sets();
    set->set_set(3);
    set->set_driver("scsi_debug");
    set->set_host("host2");
    set->set_model("scsi_debug");
    set->set_shared(true);
    set->set_host_wide(true);
    set->set_queue_depth(4);
    v1::TagDisk* disk = out->add_disks();
    disk->set_device(1);
    disk->set_set(3);
    disk->set_scheduler("none");
    v1::TagWaitRow* row = out->add_rows();
    row->set_device(1);
    row->set_set(3);
    row->set_hctx(1);
    row->set_kind(v1::TAG_KIND_HARDWARE);
    row->set_nr_tags(4);
    row->set_source(v1::TAG_WAIT_SOURCE_KPROBE);
    row->set_intent(1);
    row->set_actor(1);
    row->set_waits(waits_);
    row->set_rounds(waits_ + 1);
    row->set_woke_at_once(1);
    row->set_wait_ns(waits_ * wait_ns_);
    row->set_max_wait_ns(wait_ns_);
    row->mutable_wait()->add_buckets(static_cast<uint32_t>(HistogramBucket(wait_ns_)));
    row->mutable_wait()->add_counts(waits_);
    row->set_ended_with_tag(waits_);
    row->set_active_sum(waits_);
    row->set_active_samples(waits_);
    row->set_active_max(1);
    for (auto [device, tags] : {std::pair{1u, 1u}, {2u, 3u}}) {
      v1::TagHolder* holder = out->add_holders();
      holder->set_waiter_device(1);
      holder->set_set(3);
      holder->set_kind(v1::TAG_KIND_HARDWARE);
      holder->set_holder_device(device);
      holder->set_tags_sum(tags * waits_);
      holder->set_tags_max(tags);
      holder->set_samples(waits_);
      holder->set_nr_tags_sum(4 * waits_);
    }
    out->set_open_waits(0);
    out->set_source(v1::TAG_WAIT_SOURCE_KPROBE);
  }

  const std::string host_;
  const uint64_t waits_;
  const uint64_t wait_ns_;
  uint64_t first_unix_ns_ = 0;
};

class TagsTest : public ::testing::Test {
 protected:
  void SetUp() override { StartAggregator(); }

  void StartAggregator() {
    auto aggregator = fleet_.StartAggregator();
    ASSERT_TRUE(aggregator.ok()) << aggregator.status();
    aggregator_ = *std::move(aggregator);
  }

  std::shared_ptr<grpc::Channel> Channel() {
    // A connection of its own each time.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(fleet_.address(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  // As the one before may not be gone yet for the aggregator.
  std::unique_ptr<ScriptedAgent> Register(const TagHost& host, uint64_t* durable_seq = nullptr) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (absl::Now() < deadline) {
      auto agent = std::make_unique<ScriptedAgent>(Channel());
      if (auto ack = agent->Register(host.Hello()); ack.has_value()) {
        if (durable_seq != nullptr) *durable_seq = ack->durable_seq();
        return agent;
      }
      absl::SleepFor(absl::Milliseconds(100));
    }
    ADD_FAILURE() << "no stream";
    return nullptr;
  }

  Fleet fleet_;
  std::unique_ptr<Daemon> aggregator_;
};

TEST_F(TagsTest, WhatIsSentAgainCountsOnceAndIsShownAsItWas) {
  TagHost db1("db1", 100, 2'000'000);
  TagHost db2("db2", 10, 1'000'000);
  {
    auto agent = Register(db1);
    ASSERT_NE(agent, nullptr);
    for (uint64_t seq = 1; seq <= 3; ++seq) ASSERT_TRUE(agent->Send(db1.Batch(seq)));
    ASSERT_TRUE(agent->AwaitAck(3));
    // The acknowledgement of this one is not read: the stream breaks.
    ASSERT_TRUE(agent->Send(db1.Batch(4)));
    agent->Cancel();
  }
  {
    auto agent = Register(db1);
    ASSERT_NE(agent, nullptr);
    for (uint64_t seq = 2; seq <= 5; ++seq) ASSERT_TRUE(agent->Send(db1.Batch(seq)));
    ASSERT_TRUE(agent->AwaitAck(5));
  }
  // Acknowledged is durable: killed without warning, and everything sent once more.
  ASSERT_TRUE(aggregator_->Stop(SIGKILL).ok());
  StartAggregator();
  {
    uint64_t durable = 0;
    auto agent = Register(db1, &durable);
    ASSERT_NE(agent, nullptr);
    EXPECT_EQ(durable, 5u);
    for (uint64_t seq = 1; seq <= 6; ++seq) ASSERT_TRUE(agent->Send(db1.Batch(seq)));
    ASSERT_TRUE(agent->AwaitAck(6));
  }
  {
    auto agent = Register(db2);
    ASSERT_NE(agent, nullptr);
    ASSERT_TRUE(agent->Send(db2.Batch(1)));
    ASSERT_TRUE(agent->AwaitAck(1));
  }

  nlohmann::json answer = fleet_.CliJson({"tags", "--since", "1h"});
  ASSERT_EQ(answer["rows"].size(), 2u) << answer.dump(2);
  const nlohmann::json& row = answer["rows"][0];
  EXPECT_EQ(row["host"], "db1");
  EXPECT_EQ(row["device"], "sda");
  EXPECT_EQ(row["device_model"], "Fast SSD");
  EXPECT_EQ(row["tags"], "hardware");
  EXPECT_EQ(row["shared"], true);
  EXPECT_EQ(row["nr_tags_min"], 4);
  EXPECT_EQ(row["waits"], 600);
  EXPECT_EQ(row["rounds"], 606);
  EXPECT_EQ(row["woke_at_once"], 6);
  EXPECT_EQ(row["wait_ns"], 1'200'000'000);
  EXPECT_EQ(row["wait_max_ns"], 2'000'000);
  EXPECT_NEAR(row["wait_p99_ns"].get<double>(), 2e6, 2e6 * 0.0625);
  EXPECT_EQ(row["ended_with_tag"], 600);
  EXPECT_EQ(row["active_mean"], 1.0);
  EXPECT_EQ(row["controller"]["driver"], "scsi_debug");
  EXPECT_EQ(row["controller"]["firmware"], nullptr);
  EXPECT_EQ(row["settings"]["scheduler"], "none");
  EXPECT_EQ(row["settings"]["nr_requests"], nullptr);
  ASSERT_EQ(row["holders"].size(), 2u);
  EXPECT_EQ(row["holders"][0]["device"], "sdb");
  EXPECT_EQ(row["holders"][0]["share"], 0.75);
  EXPECT_EQ(row["holders"][0]["tags_mean"], 3.0);
  EXPECT_EQ(row["holders"][1]["waiter"], true);
  ASSERT_EQ(row["waiters"].size(), 1u);
  EXPECT_EQ(row["waiters"][0]["comm"], "postgres");
  EXPECT_EQ(row["waiters"][0]["intent"], "42424242424242424242424242424242");
  EXPECT_EQ(row["sources"]["kprobe"], 600);
  EXPECT_EQ(answer["hosts_reporting"], 2);
  EXPECT_EQ(answer["hosts_inferring"], 0);
  EXPECT_EQ(answer["open_waits"], 0);
  ASSERT_EQ(answer["controllers"].size(), 1u);
  EXPECT_EQ(answer["controllers"][0]["waits"], 610);
  EXPECT_EQ(answer["controllers"][0]["hosts"], 2);
  EXPECT_EQ(answer["disk_models"][0]["model"], "Fast SSD");

  CliResult table = fleet_.Cli({"tags", "--hosts", "{host=\"db1\"}"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(absl::StrContains(table.out, "· sda starved on hardware tags 600 times, p99 "))
      << table.out;
  EXPECT_TRUE(absl::StrContains(table.out, "; sdb held 3 of 4 tags; consider ")) << table.out;
  EXPECT_TRUE(absl::StrContains(table.out, "sdb 75 %, sda 25 %")) << table.out;
  EXPECT_TRUE(absl::StrContains(table.out, "postgres")) << table.out;

  table = fleet_.Cli({"tags"});
  EXPECT_TRUE(absl::StrContains(table.out, "· sda of db2 starved on hardware tags 10 times"))
      << table.out;
  EXPECT_TRUE(absl::StrContains(table.out, "DISK MODEL")) << table.out;

  CliResult csv = fleet_.Cli({"tags", "--output", "csv", "--limit", "1"});
  std::vector<std::string> lines = absl::StrSplit(csv.out, '\n', absl::SkipWhitespace());
  ASSERT_EQ(lines.size(), 2u) << csv.out;
  EXPECT_TRUE(absl::StartsWith(lines[0], "host_id,host,device,device_model,tags,")) << lines[0];
  EXPECT_TRUE(
      absl::StartsWith(lines[1], "db1,db1,sda,Fast SSD,hardware,false,true,4,4,1,1.0,1,600,"))
      << lines[1];
  EXPECT_TRUE(absl::StrContains(lines[1], ",sdb=0.7500;sda=0.2500,kprobe=600,")) << lines[1];
}

TEST_F(TagsTest, NothingIsNotZero) {
  CliResult table = fleet_.Cli({"tags"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(absl::StrContains(table.out, "none waited, or the agents do not look")) << table.out;
  nlohmann::json answer = fleet_.CliJson({"tags"});
  EXPECT_EQ(answer["hosts_reporting"], 0);
  EXPECT_EQ(answer["open_waits"], nullptr);
}

TEST_F(TagsTest, WhatIsMalformedIsRefusedWithTheReason) {
  TagHost host("evil", 5, 1'000'000);
  auto agent = Register(host);
  ASSERT_NE(agent, nullptr);
  v1::Batch batch = host.Batch(1);
  *batch.mutable_tag_waits()->add_sets() = batch.tag_waits().sets(0);
  ASSERT_TRUE(agent->Send(batch));
  auto reject = agent->ReceiveReject();
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->action(), v1::Reject::ACTION_DROP);
  EXPECT_TRUE(absl::StrContains(reject->reason(), "tag_waits: set 3 is defined twice"))
      << reject->reason();
  EXPECT_EQ(fleet_.CliJson({"tags"})["rows"].size(), 0u);
}

TEST_F(TagsTest, WatchAsksAgain) {
  TagHost host("db1", 5, 1'000'000);
  auto agent = Register(host);
  ASSERT_NE(agent, nullptr);
  ASSERT_TRUE(agent->Send(host.Batch(1)));
  ASSERT_TRUE(agent->AwaitAck(1));
  const std::string log = fleet_.directory() + "/watch.log";
  auto watch = Daemon::Start({ProgramPath("cli/fleetblame"), "--aggregator", fleet_.address(),
                              "tags", "--watch=200ms", "--output", "json"},
                             log);
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_TRUE((*watch)->WaitForLog("\"waits\":5,", absl::Seconds(20))) << (*watch)->Log();
  ASSERT_TRUE(agent->Send(host.Batch(2)));
  EXPECT_TRUE((*watch)->WaitForLog("\"waits\":10,", absl::Seconds(20))) << (*watch)->Log();
  EXPECT_FALSE((*watch)->HasEnded());
  ASSERT_TRUE((*watch)->Stop(SIGINT).ok());
  // Each answer is one line.
  for (absl::string_view line : absl::StrSplit((*watch)->Log(), '\n', absl::SkipEmpty())) {
    EXPECT_FALSE(nlohmann::json::parse(line, nullptr, false).is_discarded()) << line;
  }
  EXPECT_EQ(fleet_.Cli({"tags", "--watch", "--output", "csv"}).exit_code, 2);
}

}  // namespace
}  // namespace fleetblame::testing
