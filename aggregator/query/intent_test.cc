// SPDX-License-Identifier: Apache-2.0
//
// GetIntent, SearchIntents and CompareHosts against answers worked out by hand, on a few hosts
// (rows are read host by host) and on many (rows are read by intent).
#include "aggregator/query/testing/query_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Stub = v1::Query::Stub;

// `count` hosts; the intent of interest on the first `with` of them, another one everywhere.
struct World {
  World(int count, int with, uint64_t bytes = 1000) {
    wanted = f.Intent("aabbcc", {"ext4_sync_file", "fsync"}, "sync");
    other = f.Intent("ddeeff", {"xfs_vm_writepages", "write"});
    ActorNumber mysqld = f.Actor("mysqld", "/db");
    ActorNumber cp = f.Actor("cp");
    for (int i = 0; i < count; ++i) {
      hosts.push_back(f.Host("h" + std::to_string(i), {{"n", std::to_string(i % 2)}}));
      DeviceNumber device =
          f.Device("sd" + std::string(1, static_cast<char>('a' + i % 2)), std::to_string(i));
      std::vector<BlockRow> rows = {Write(other, cp, device, 1, 3000)};
      rows.back().issuer_intent = other;
      if (i < with) {
        BlockRow row = Write(wanted, mysqld, device, 2, bytes * static_cast<uint64_t>(i + 1));
        row.issuer_intent = other;
        row.file = f.File("/data/" + std::to_string(i % 3), static_cast<uint64_t>(i));
        row.io.Add(50, 2);
        rows.push_back(row);
      }
      f.store().AddRows(hosts.back(), kDawn, kDawn + 10 * kSecond, rows);
    }
  }
  QueryFixture f;
  std::vector<HostNumber> hosts;
  IntentNumber wanted, other;
};

class IntentTest : public ::testing::TestWithParam<int> {};

TEST_P(IntentTest, GetIntent) {
  const int count = GetParam();
  World w(count, 4);
  v1::GetIntentRequest request;
  request.set_intent("AABB");
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::GetIntentResponse r;
  grpc::Status status = w.f.Call(&Stub::GetIntent, request, &r);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(r.short_id(), "aabbcc");
  EXPECT_THAT(r.intent().frames(), ElementsAre("ext4_sync_file", "fsync"));
  EXPECT_EQ(r.intent().variants_size(), 1);
  EXPECT_EQ(r.first_seen_unix_ns(), kDawn);
  EXPECT_EQ(r.last_seen_unix_ns(), kDawn + 10 * kSecond);
  EXPECT_EQ(r.as_dirtier().bytes(), 10000u);
  EXPECT_EQ(r.as_dirtier().ios(), 8u);
  EXPECT_EQ(r.as_dirtier().hosts(), 4u);
  EXPECT_THAT(r.as_dirtier().io().counts(), ElementsAre(8));
  EXPECT_EQ(r.as_issuer().bytes(), 0u);
  ASSERT_EQ(r.hosts_size(), 4);
  EXPECT_EQ(r.hosts(0).key(0).host_id(), "h3");
  EXPECT_EQ(r.hosts(0).metrics().bytes(), 4000u);
  ASSERT_EQ(r.comms_size(), 1);
  EXPECT_EQ(r.comms(0).key(0).text(), "mysqld");
  EXPECT_EQ(r.comms(0).metrics().hosts(), 4u);
  ASSERT_EQ(r.files_size(), 3);
  EXPECT_EQ(r.files(0).key(0).text(), "/data/0");
  EXPECT_EQ(r.files(0).metrics().bytes(), 5000u);
  ASSERT_EQ(r.devices_size(), 2);
  EXPECT_EQ(r.devices(0).key(0).text(), "sdb");
  EXPECT_EQ(r.devices(0).metrics().bytes(), 6000u);
  EXPECT_EQ(r.summary().hosts_matched(), static_cast<uint32_t>(count));
  EXPECT_EQ(r.summary().hosts_with_data(), static_cast<uint32_t>(count));
  EXPECT_EQ(r.summary().written_bytes(), 10000u);

  request.set_selector("n=\"0\"");
  request.set_limit(1);
  r.Clear();
  ASSERT_TRUE(w.f.Call(&Stub::GetIntent, request, &r).ok());
  EXPECT_EQ(r.as_dirtier().bytes(), 4000u);
  ASSERT_EQ(r.hosts_size(), 1);
  EXPECT_EQ(r.hosts(0).key(0).host_id(), "h2");

  request.set_intent("ddeeff");
  request.clear_selector();
  r.Clear();
  ASSERT_TRUE(w.f.Call(&Stub::GetIntent, request, &r).ok());
  EXPECT_EQ(r.as_issuer().bytes(), static_cast<uint64_t>(count) * 3000 + 10000);
  EXPECT_EQ(r.as_dirtier().bytes(), static_cast<uint64_t>(count) * 3000);
  EXPECT_EQ(r.as_issuer().hosts(), static_cast<uint32_t>(count));
}

TEST_P(IntentTest, SearchIntents) {
  const int count = GetParam();
  World w(count, 3);
  w.f.Intent("012345", {"ext4_never_seen"});
  v1::SearchIntentsRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  request.set_frame_regex("^ext4_|sync");
  v1::SearchIntentsResponse r;
  ASSERT_TRUE(w.f.Call(&Stub::SearchIntents, request, &r).ok());
  ASSERT_EQ(r.matches_size(), 1);
  EXPECT_EQ(r.matches(0).intent().short_id(), "aabbcc");
  EXPECT_THAT(r.matches(0).matching_frames(), ElementsAre(0, 1));
  EXPECT_EQ(r.matches(0).metrics().bytes(), 6000u);
  EXPECT_EQ(r.matches(0).metrics().hosts(), 3u);
  // As dirtier or issuer, each row once.
  request.set_frame_regex("write");
  r.Clear();
  ASSERT_TRUE(w.f.Call(&Stub::SearchIntents, request, &r).ok());
  ASSERT_EQ(r.matches_size(), 1);
  EXPECT_EQ(r.matches(0).metrics().bytes(), static_cast<uint64_t>(count) * 3000 + 6000);
  request.set_frame_regex(".");
  request.set_limit(1);
  r.Clear();
  ASSERT_TRUE(w.f.Call(&Stub::SearchIntents, request, &r).ok());
  EXPECT_EQ(r.matches_size(), 1);
  EXPECT_EQ(r.omitted(), 1u);
  request.set_frame_regex("nothing_like_it");
  r.Clear();
  ASSERT_TRUE(w.f.Call(&Stub::SearchIntents, request, &r).ok());
  EXPECT_EQ(r.matches_size(), 0);
}

TEST_P(IntentTest, CompareHosts) {
  const int count = GetParam();
  World w(count, count);
  // One host goes wild; nothing but its label tells it from the rest.
  HostNumber wild = w.f.Host("wild", {{"n", "0"}, {"firmware", "bad"}}, "6.9.9");
  w.f.store().AddRows(wild, kDawn, kDawn + 10 * kSecond,
                      {Write(w.wanted, w.f.Actor("mysqld"), 0, 1, 6'000'000)});
  // Has data but not this intent; and one without any data.
  HostNumber calm = w.f.Host("calm", {{"n", "1"}});
  w.f.store().AddRows(calm, kDawn, kDawn + 10 * kSecond,
                      {Write(w.other, w.f.Actor("cp"), 0, 1, 10)});
  w.f.Host("silent");
  v1::CompareHostsRequest request;
  request.set_intent("aabbcc");
  request.set_limit(3);
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::CompareHostsResponse r;
  grpc::Status status = w.f.Call(&Stub::CompareHosts, request, &r);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(r.intent().short_id(), "aabbcc");
  ASSERT_EQ(r.hosts_size(), 3);
  EXPECT_EQ(r.hosts(0).host_id(), "wild");
  EXPECT_DOUBLE_EQ(r.hosts(0).bytes_per_second(), 100'000.0);
  EXPECT_DOUBLE_EQ(r.hosts(0).share_of_host(), 1.0);
  EXPECT_GT(r.hosts(0).robust_z(), 3.5);
  EXPECT_EQ(r.hosts(0).labels().at("firmware"), "bad");
  EXPECT_EQ(r.omitted(), static_cast<uint64_t>(count + 2 - 3));
  // Rates are 0, 1000/60, 2000/60, ... and the wild one: the median is the middle of the row.
  const double unit = 1000.0 / 60;
  const double median = (count + 2) % 2 == 1 ? (count + 1) / 2 * unit : (count + 1) / 2.0 * unit;
  EXPECT_NEAR(r.median_bytes_per_second(), median, 1e-6);
  EXPECT_GT(r.mad_bytes_per_second(), 0);
  EXPECT_NEAR(r.hosts(0).robust_z(), (100'000.0 - median) / (1.4826 * r.mad_bytes_per_second()),
              1e-6);
  ASSERT_GE(r.shared_labels_size(), 2);
  EXPECT_EQ(r.shared_labels(0).outliers_with(), 1u);
  EXPECT_EQ(r.shared_labels(0).outliers(), 1u);
  EXPECT_EQ(r.shared_labels(0).others_with(), 0u);
  EXPECT_EQ(r.shared_labels(0).others(), static_cast<uint32_t>(count + 1));
  EXPECT_EQ(r.shared_labels(0).name(), "firmware");
  EXPECT_EQ(r.shared_labels(1).name(), "kernel");
  EXPECT_EQ(r.shared_labels(1).value(), "6.9.9");
  EXPECT_EQ(r.summary().hosts_with_data(), static_cast<uint32_t>(count + 2));
}

INSTANTIATE_TEST_SUITE_P(FewAndManyHosts, IntentTest, ::testing::Values(4, 30, 100));

TEST(CompareHostsTest, TooFewHostsHaveNoScore) {
  World w(2, 2);
  v1::CompareHostsRequest request;
  request.set_intent("aabbcc");
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::CompareHostsResponse r;
  ASSERT_TRUE(w.f.Call(&Stub::CompareHosts, request, &r).ok());
  ASSERT_EQ(r.hosts_size(), 2);
  EXPECT_FALSE(r.hosts(0).has_robust_z());
  EXPECT_EQ(r.hosts(0).host_id(), "h1");
  EXPECT_DOUBLE_EQ(r.hosts(1).share_of_host(), 0.25);
  EXPECT_EQ(r.shared_labels_size(), 0);
}

TEST(IntentLookupTest, AmbiguousAndMalformedIds) {
  QueryFixture f;
  f.Intent("9f3c1a", {"ext4_da_write_end", "write"}, "background");
  f.Intent("9f3c2b", {"xfs_file_write"});
  auto ask = [&](const std::string& id) {
    v1::GetIntentRequest request;
    request.set_intent(id);
    v1::GetIntentResponse r;
    return f.Call(&Stub::GetIntent, request, &r);
  };
  grpc::Status s = ask("9f3c");
  EXPECT_EQ(s.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(s.error_message(), HasSubstr("ambiguous"));
  EXPECT_THAT(s.error_message(), HasSubstr("9f3c1a000000 ext4_da_write_end < write (background)"));
  EXPECT_THAT(s.error_message(), HasSubstr("9f3c2b000000 xfs_file_write"));
  EXPECT_TRUE(ask("9f3c1").ok());
  EXPECT_TRUE(ask("9F3C1A00000000000000000000000000").ok());
  for (const char* bad : {"", "9f3", "9f3x1a", "9f3c1a000000000000000000000000000", "9f3c\n"}) {
    s = ask(bad);
    EXPECT_EQ(s.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
    EXPECT_THAT(s.error_message(), HasSubstr("hexadecimal"));
  }
  s = ask("ffffff");
  EXPECT_EQ(s.error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace fleetblame::aggregator
