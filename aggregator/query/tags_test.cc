// SPDX-License-Identifier: Apache-2.0
//
// Tags against answers worked out by hand: two hosts with a RAID controller, a fast and a slow
// disk.
#include <map>

#include "aggregator/query/testing/query_fixture.h"
#include "common/histogram.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Stub = v1::Query::Stub;

class TagsTest : public ::testing::Test {
 protected:
  TagsTest() {
    db1_ = f_.Host("db1", {{"role", "db"}});
    db2_ = f_.Host("db2", {{"role", "db"}});
    web1_ = f_.Host("web1", {{"role", "web"}});
    read_ = f_.Intent("41b07e", {"blk_mq_submit_bio", "read"});
    sync_ = f_.Intent("9f3c1a", {"blk_mq_submit_bio", "fsync"});
    postgres_ = f_.Actor("postgres");
    for (HostNumber host : {db1_, db2_}) {
      ssd_[host] = Disk("sda", "Fast SSD", host);
      hdd_[host] = Disk("sdb", "Slow HDD", host);
    }
  }

  DeviceNumber Disk(const std::string& name, const std::string& model, HostNumber host) {
    v1::Device device;
    device.set_name(name);
    device.set_model(model);
    device.set_persistent_id(name + std::to_string(host));
    return f_.store().InternDevice(device);
  }

  // sda starved `n` times for a millisecond each while sdb held 3 of 4 tags and sda one.
  v1::TagWaits Starved(HostNumber host, uint64_t n, uint32_t set_number = 1) {
    v1::TagWaits waits;
    v1::TagSet* set = waits.add_sets();
    set->set_set(set_number);
    set->set_driver("megaraid_sas");
    set->set_model("PERC H740P");
    set->set_host("host0");
    set->set_shared(true);
    set->set_host_wide(true);
    v1::TagDisk* disk = waits.add_disks();
    disk->set_device(ssd_[host]);
    disk->set_set(set_number);
    disk->set_scheduler("none");
    v1::TagDisk* slow = waits.add_disks();
    slow->set_device(hdd_[host]);
    slow->set_set(set_number);
    slow->set_scheduler("bfq");
    slow->set_nr_requests(64);
    v1::TagWaitRow* row = waits.add_rows();
    row->set_device(ssd_[host]);
    row->set_set(set_number);
    row->set_hctx(0);
    row->set_kind(v1::TAG_KIND_HARDWARE);
    row->set_nr_tags(4);
    row->set_source(v1::TAG_WAIT_SOURCE_FENTRY);
    row->set_intent(read_);
    row->set_actor(postgres_);
    row->set_waits(n);
    row->set_rounds(n);
    row->set_wait_ns(n * 1'000'000);
    row->set_max_wait_ns(1'000'000);
    row->mutable_wait()->add_buckets(static_cast<uint32_t>(HistogramBucket(1'000'000)));
    row->mutable_wait()->add_counts(n);
    row->set_ended_with_tag(n);
    row->set_active_sum(n);
    row->set_active_samples(n);
    row->set_active_max(1);
    for (auto [device, tags] : {std::pair{ssd_[host], 1u}, {hdd_[host], 3u}}) {
      v1::TagHolder* holder = waits.add_holders();
      holder->set_waiter_device(ssd_[host]);
      holder->set_set(set_number);
      holder->set_kind(v1::TAG_KIND_HARDWARE);
      holder->set_holder_device(device);
      holder->set_tags_sum(n * tags);
      holder->set_tags_max(tags);
      holder->set_samples(n);
      holder->set_nr_tags_sum(n * 4);
    }
    waits.set_open_waits(2);
    waits.set_source(v1::TAG_WAIT_SOURCE_FENTRY);
    return waits;
  }

  void Store(HostNumber host, uint64_t end, const v1::TagWaits& waits) {
    f_.store().AddRows(host, end - 10 * kSecond, end, {});
    f_.store().AddTagWaits(host, end, waits);
  }

  v1::TagsResponse Tags(v1::TagsRequest request = {}) {
    if (!request.has_range()) *request.mutable_range() = Range(kDawn, kDawn + kHour);
    v1::TagsResponse response;
    grpc::Status status = f_.Call(&Stub::Tags, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  QueryFixture f_;
  HostNumber db1_, db2_, web1_;
  IntentNumber read_, sync_;
  ActorNumber postgres_;
  std::map<HostNumber, DeviceNumber> ssd_, hdd_;
};

TEST_F(TagsTest, NothingStoredIsNothingReported) {
  f_.store().AddRows(web1_, kDawn, kDawn + 10 * kSecond, {});
  v1::TagsResponse r = Tags();
  EXPECT_EQ(r.rows_size(), 0);
  EXPECT_EQ(r.hosts_reporting(), 0u);
  EXPECT_FALSE(r.has_open_waits());
  EXPECT_EQ(r.omitted_rows(), 0u);
}

TEST_F(TagsTest, LookedAndSawNothingIsSomething) {
  v1::TagWaits looked;
  looked.set_source(v1::TAG_WAIT_SOURCE_TRACEPOINT);
  looked.set_open_waits(0);
  f_.store().AddTagWaits(web1_, kDawn + kMinute, looked);
  v1::TagsResponse r = Tags();
  EXPECT_EQ(r.rows_size(), 0);
  EXPECT_EQ(r.hosts_reporting(), 1u);
  EXPECT_EQ(r.summary().hosts_with_data(), 1u);
  EXPECT_TRUE(r.has_open_waits());
}

TEST_F(TagsTest, SumsWindowsOfADiskWhateverItsSetIsNumbered) {
  Store(db1_, kDawn + kMinute, Starved(db1_, 100));
  Store(db1_, kDawn + 2 * kMinute, Starved(db1_, 300, 7));
  Store(db2_, kDawn + kMinute, Starved(db2_, 50));
  v1::TagsResponse r = Tags();
  ASSERT_EQ(r.rows_size(), 2);
  const v1::TagsResponse::Row& row = r.rows(0);
  EXPECT_EQ(row.host_id(), "db1");
  EXPECT_EQ(row.device(), "sda");
  EXPECT_EQ(row.device_model(), "Fast SSD");
  EXPECT_EQ(row.set().driver(), "megaraid_sas");
  EXPECT_EQ(row.set().set(), 0u);
  EXPECT_EQ(row.settings().scheduler(), "none");
  EXPECT_EQ(row.kind(), v1::TAG_KIND_HARDWARE);
  EXPECT_EQ(row.nr_tags_min(), 4u);
  EXPECT_EQ(row.nr_tags_max(), 4u);
  EXPECT_EQ(row.hctxs(), 1u);
  EXPECT_EQ(row.metrics().waits(), 400u);
  EXPECT_EQ(row.metrics().rounds(), 400u);
  EXPECT_EQ(row.metrics().ended_with_tag(), 400u);
  EXPECT_EQ(row.metrics().wait_ns(), 400'000'000u);
  EXPECT_EQ(row.metrics().max_wait_ns(), 1'000'000u);
  ASSERT_EQ(row.metrics().wait().counts_size(), 1);
  EXPECT_EQ(row.metrics().wait().counts(0), 400u);
  EXPECT_EQ(row.active_sum(), 400u);
  EXPECT_EQ(row.active_max(), 1u);
  ASSERT_EQ(row.holders_size(), 2);
  EXPECT_EQ(row.holders(0).device(), "sdb");
  EXPECT_EQ(row.holders(0).model(), "Slow HDD");
  EXPECT_FALSE(row.holders(0).waiter());
  EXPECT_EQ(row.holders(0).settings().scheduler(), "bfq");
  EXPECT_EQ(row.holders(0).settings().nr_requests(), 64u);
  EXPECT_EQ(row.holders(0).settings().device(), 0u);
  EXPECT_EQ(row.holders(0).tags_sum(), 1200u);
  EXPECT_EQ(row.holders(0).samples(), 400u);
  EXPECT_EQ(row.holders(0).nr_tags_sum(), 1600u);
  EXPECT_EQ(row.holders(0).tags_max(), 3u);
  EXPECT_TRUE(row.holders(1).waiter());
  EXPECT_EQ(row.holders(1).tags_sum(), 400u);
  ASSERT_EQ(row.waiters_size(), 1);
  EXPECT_EQ(row.waiters(0).comm(), "postgres");
  EXPECT_EQ(row.waiters(0).intent().short_id(), "41b07e");
  EXPECT_EQ(row.waiters(0).waits(), 400u);
  ASSERT_EQ(row.sources_size(), 1);
  EXPECT_EQ(row.sources(0).source(), v1::TAG_WAIT_SOURCE_FENTRY);
  EXPECT_EQ(row.sources(0).waits(), 400u);
  EXPECT_EQ(r.rows(1).metrics().waits(), 50u);
  EXPECT_EQ(r.hosts_reporting(), 2u);
  EXPECT_EQ(r.hosts_inferring(), 0u);
  EXPECT_EQ(r.open_waits(), 4u);  // of each host the last number
  ASSERT_EQ(r.controllers_size(), 1);
  EXPECT_EQ(r.controllers(0).driver(), "megaraid_sas");
  EXPECT_EQ(r.controllers(0).model(), "PERC H740P");
  EXPECT_EQ(r.controllers(0).hosts(), 2u);
  EXPECT_EQ(r.controllers(0).disks(), 2u);
  EXPECT_EQ(r.controllers(0).metrics().waits(), 450u);
  ASSERT_EQ(r.disk_models_size(), 1);
  EXPECT_EQ(r.disk_models(0).model(), "Fast SSD");
  EXPECT_EQ(r.disk_models(0).metrics().wait_ns(), 450'000'000u);
  EXPECT_EQ(r.summary().hosts_with_data(), 2u);
}

// In the second window nobody but sda held anything.
TEST_F(TagsTest, AHolderThatIsNotNamedHeldNothing) {
  Store(db1_, kDawn + kMinute, Starved(db1_, 100));
  v1::TagWaits alone = Starved(db1_, 100);
  alone.mutable_holders()->RemoveLast();
  Store(db1_, kDawn + 2 * kMinute, alone);
  v1::TagsResponse r = Tags();
  ASSERT_EQ(r.rows(0).holders_size(), 2);
  EXPECT_EQ(r.rows(0).holders(0).device(), "sdb");
  EXPECT_EQ(r.rows(0).holders(0).tags_sum(), 300u);
  EXPECT_EQ(r.rows(0).holders(0).samples(), 200u);
  EXPECT_EQ(r.rows(0).holders(1).samples(), 200u);
}

TEST_F(TagsTest, KindsPoolsAndUnknownStayApart) {
  v1::TagWaits waits = Starved(db1_, 10);
  v1::TagWaitRow scheduler = waits.rows(0);
  scheduler.set_kind(v1::TAG_KIND_SCHEDULER);
  *waits.add_rows() = scheduler;
  v1::TagWaitRow reserved = waits.rows(0);
  reserved.set_reserved(true);
  *waits.add_rows() = reserved;
  v1::TagWaitRow unknown = waits.rows(0);
  unknown.set_set(0);
  unknown.clear_nr_tags();
  unknown.clear_hctx();
  *waits.add_rows() = unknown;
  Store(db1_, kDawn + kMinute, waits);
  v1::TagsResponse r = Tags();
  ASSERT_EQ(r.rows_size(), 4);
  int without_set = 0;
  for (const auto& row : r.rows()) {
    EXPECT_EQ(row.metrics().waits(), 10u);
    if (row.has_set()) continue;
    ++without_set;
    EXPECT_FALSE(row.has_nr_tags_min());
    EXPECT_EQ(row.hctxs(), 0u);
    EXPECT_EQ(row.holders_size(), 0);
  }
  EXPECT_EQ(without_set, 1);
  EXPECT_EQ(r.controllers_size(), 2);
}

TEST_F(TagsTest, SettingsAreTheLastOnesAndPoolsShowTheirRange) {
  v1::TagWaits later = Starved(db1_, 10);
  later.mutable_disks(0)->set_scheduler("mq-deadline");
  later.mutable_rows(0)->set_nr_tags(64);
  Store(db1_, kDawn + 2 * kMinute, later);
  Store(db1_, kDawn + kMinute, Starved(db1_, 10));
  v1::TagsResponse r = Tags();
  ASSERT_EQ(r.rows_size(), 1);
  EXPECT_EQ(r.rows(0).settings().scheduler(), "mq-deadline");
  EXPECT_EQ(r.rows(0).nr_tags_min(), 4u);
  EXPECT_EQ(r.rows(0).nr_tags_max(), 64u);
}

TEST_F(TagsTest, InferredWaitsAreSaid) {
  Store(db2_, kDawn + kMinute, Starved(db2_, 1));
  v1::TagsResponse r = Tags();
  for (const auto& warning : r.summary().warnings()) EXPECT_THAT(warning, Not(HasSubstr("infer")));
  v1::TagWaits waits = Starved(db1_, 5);
  waits.set_source(v1::TAG_WAIT_SOURCE_INFERRED);
  waits.mutable_rows(0)->set_source(v1::TAG_WAIT_SOURCE_INFERRED);
  waits.clear_open_waits();
  Store(db1_, kDawn + kMinute, waits);
  r = Tags();
  EXPECT_EQ(r.hosts_inferring(), 1u);
  EXPECT_EQ(r.rows(0).sources(0).source(), v1::TAG_WAIT_SOURCE_INFERRED);
  EXPECT_THAT(r.summary().warnings(),
              ::testing::Contains(HasSubstr("On 1 host tag waits are inferred")));
  EXPECT_EQ(r.open_waits(), 2u);
}

TEST_F(TagsTest, SelectorDevicesLimitAndRange) {
  Store(db1_, kDawn + kMinute, Starved(db1_, 100));
  Store(db2_, kDawn + kMinute, Starved(db2_, 50));
  Store(db2_, kDawn + 2 * kHour, Starved(db2_, 1000));
  v1::TagsRequest request;
  request.set_limit(1);
  v1::TagsResponse r = Tags(request);
  ASSERT_EQ(r.rows_size(), 1);
  EXPECT_EQ(r.rows(0).host_id(), "db1");
  EXPECT_EQ(r.omitted_rows(), 1u);
  EXPECT_EQ(r.omitted().waits(), 50u);
  EXPECT_EQ(r.controllers(0).metrics().waits(), 150u);
  request.Clear();
  request.set_selector("{host=\"db2\"}");
  r = Tags(request);
  ASSERT_EQ(r.rows_size(), 1);
  EXPECT_EQ(r.rows(0).metrics().waits(), 50u);
  EXPECT_EQ(r.hosts_reporting(), 1u);
  request.Clear();
  request.add_devices("sdb");
  EXPECT_EQ(Tags(request).rows_size(), 0);
  request.add_devices("sda");
  EXPECT_EQ(Tags(request).rows_size(), 2);
}

TEST_F(TagsTest, WhoWaitedLongestComesFirst) {
  v1::TagWaits waits = Starved(db1_, 10);
  for (uint32_t i = 0; i < 8; ++i) {
    v1::TagWaitRow row = waits.rows(0);
    row.set_intent(i == 0 ? sync_ : 0);
    row.set_actor(f_.Actor("p" + std::to_string(i)));
    row.set_wait_ns(row.wait_ns() * (i == 0 ? 100 : 0));
    *waits.add_rows() = row;
  }
  Store(db1_, kDawn + kMinute, waits);
  v1::TagsResponse r = Tags();
  ASSERT_EQ(r.rows(0).waiters_size(), 5);
  EXPECT_EQ(r.rows(0).omitted_waiters(), 4u);
  EXPECT_EQ(r.rows(0).waiters(0).intent().short_id(), "9f3c1a");
  EXPECT_EQ(r.rows(0).waiters(1).comm(), "postgres");
  EXPECT_THAT(r.rows(0).waiters(2).intent().text(), IsEmpty());
  v1::TagsRequest request;
  request.set_waiters(100);
  EXPECT_EQ(Tags(request).rows(0).waiters_size(), 9);
}

TEST_F(TagsTest, RefusesNonsense) {
  auto refused = [this](const v1::TagsRequest& request) {
    v1::TagsResponse response;
    return f_.Call(&Stub::Tags, request, &response);
  };
  v1::TagsRequest request;
  request.set_waiters(101);
  EXPECT_THAT(refused(request).error_message(), HasSubstr("waiters: 101 is more than the 100"));
  request.Clear();
  request.set_limit(10'001);
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.Clear();
  for (int i = 0; i < 1001; ++i) request.add_devices("sda");
  EXPECT_THAT(refused(request).error_message(), HasSubstr("devices: 1001 values; at most 1000"));
  request.Clear();
  request.set_selector("{");
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(TagsLimits, TooManyGroupsEndTheQuery) {
  QueryOptions options;
  options.budget.max_groups = 10;
  QueryFixture f(options);
  HostNumber host = f.Host("a");
  v1::TagWaits waits;
  for (int i = 0; i < 20; ++i) waits.add_rows()->set_device(f.Device("sd" + std::to_string(i)));
  f.store().AddTagWaits(host, kDawn + kMinute, waits);
  v1::TagsRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + kHour);
  v1::TagsResponse response;
  EXPECT_EQ(f.Call(&Stub::Tags, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace fleetblame::aggregator
