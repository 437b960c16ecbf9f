// SPDX-License-Identifier: Apache-2.0
//
// The same batches in the store on disk, rolled up, and in the plain one in memory: every question
// must get the same answer, whether the store reads hosts, intents or the sums of the fleet.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/query/query_service.h"
#include "aggregator/query/testing/query_fixture.h"
#include "aggregator/store/rocks_store.h"
#include "aggregator/store/testing/store_model.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

constexpr int kHosts = 12;

// A service over a store that lives elsewhere.
class Served {
 public:
  Served(Store* store, uint64_t max_host_blocks) {
    QueryOptions options;
    options.max_host_blocks = max_host_blocks;
    service_ = CreateQueryService(store, nullptr, options);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = v1::Query::NewStub(server_->InProcessChannel(arguments));
  }
  ~Served() {
    stub_.reset();
    server_->Shutdown();
    server_->Wait();
  }
  v1::Query::Stub* operator->() { return stub_.get(); }

 private:
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Query::Stub> stub_;
};

// Rows as lines in an order of their own: equal sums may come in any order.
std::string Lines(const v1::TopResponse& response, bool hosts) {
  std::vector<std::string> lines;
  for (v1::TopResponse::Row row : response.rows()) {
    if (!hosts) row.mutable_metrics()->clear_hosts();
    lines.push_back(row.ShortDebugString());
  }
  std::sort(lines.begin(), lines.end());
  v1::Summary s = response.summary();
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\nread ", s.read_bytes(), " written ",
                      s.written_bytes(), " hosts ", s.hosts_with_data(), " of ", s.hosts_matched());
}

class StoresAgreeTest : public ::testing::Test {
 protected:
  StoresAgreeTest() {
    options_.path = absl::StrCat(::testing::TempDir(), "/stores_agree_", getpid());
    std::filesystem::remove_all(options_.path);
    options_.min_free_bytes = 0;
    options_.rollup_settle_ns = {};
    auto opened = OpenRocksStore(options_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    disk_ = *std::move(opened);
    std::vector<ModelAgent> agents;
    for (int i = 0; i < kHosts; ++i) {
      agents.emplace_back(i, static_cast<uint64_t>(i) + 5);
      memory_numbers_.push_back(*memory_.UpsertHost(agents.back().Record()));
      disk_numbers_.push_back(*disk_->UpsertHost(agents.back().Record()));
    }
    // Three hours in windows of a minute that begin nowhere in particular.
    for (uint64_t minute = 1; minute <= 180; ++minute) {
      for (int i = 0; i < kHosts; ++i) {
        const auto at = static_cast<size_t>(i);
        if (i == 7 && minute > 60) continue;  // falls silent
        auto out = agents[at].Next(kTestStartUnixNs + minute * kMinute + 23 * kSecond, kMinute, 5);
        IncomingBatch in{memory_numbers_[at], &out.batch, &out.rows};
        EXPECT_EQ((*memory_.Append({&in, 1}))[0].outcome, AppendResult::Outcome::kDurable);
        in.host = disk_numbers_[at];
        EXPECT_EQ((*disk_->Append({&in, 1}))[0].outcome, AppendResult::Outcome::kDurable);
      }
    }
    EXPECT_TRUE(disk_->Upkeep(kTestStartUnixNs + 5 * kHour, kHour).ok());
  }
  ~StoresAgreeTest() override {
    disk_.reset();
    std::filesystem::remove_all(options_.path);
  }

  RocksStoreOptions options_;
  FakeStore memory_;
  std::unique_ptr<Store> disk_;
  std::vector<HostNumber> memory_numbers_, disk_numbers_;
};

TEST_F(StoresAgreeTest, Top) {
  Served memory(&memory_, UINT64_MAX);
  Served by_host(disk_.get(), UINT64_MAX);
  Served by_fleet(disk_.get(), 0);
  std::mt19937 random(3);
  std::string intent;
  int with_rows = 0;
  for (int round = 0; round < 150; ++round) {
    v1::TopRequest request;
    request.set_limit(10000);
    const uint64_t start = kTestStartUnixNs + random() % 150 * kMinute + random() % 60 * kSecond;
    *request.mutable_range() = Range(start, start + (1 + random() % 120) * kMinute);
    std::vector<int> dimensions = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    std::shuffle(dimensions.begin(), dimensions.end(), random);
    dimensions.resize(random() % 4);
    for (int d : dimensions) request.add_by(static_cast<v1::Dimension>(d));
    if (random() % 3 == 0) request.set_side(v1::SIDE_ISSUER);
    if (random() % 4 == 0) request.mutable_filter()->add_operations(v1::OPERATION_WRITE);
    if (random() % 4 == 0 && !intent.empty()) request.mutable_filter()->add_intents(intent);
    SCOPED_TRACE(request.ShortDebugString());
    v1::TopResponse want, hosts, fleet;
    grpc::ClientContext one, two, three;
    ASSERT_TRUE(memory->Top(&one, request, &want).ok());
    ASSERT_TRUE(by_host->Top(&two, request, &hosts).ok());
    ASSERT_TRUE(by_fleet->Top(&three, request, &fleet).ok());
    EXPECT_EQ(Lines(hosts, true), Lines(want, true));
    EXPECT_EQ(Lines(fleet, false), Lines(want, false));
    with_rows += want.rows_size() > 0;
    for (const auto& row : want.rows()) {
      for (const auto& value : row.key()) {
        if (value.dimension() == v1::DIMENSION_INTENT && !value.text().empty()) {
          intent = value.text();
        }
      }
    }
  }
  EXPECT_FALSE(intent.empty());
  EXPECT_GT(with_rows, 100);
}

TEST_F(StoresAgreeTest, Tags) {
  Served memory(&memory_, UINT64_MAX);
  Served disk(disk_.get(), 0);
  std::mt19937 random(4);
  auto lines = [](v1::TagsResponse response) {
    std::vector<std::string> rows;
    for (const auto& row : response.rows()) rows.push_back(row.ShortDebugString());
    std::sort(rows.begin(), rows.end());
    response.clear_rows();
    response.clear_summary();
    return absl::StrCat(absl::StrJoin(rows, "\n"), "\n", response.ShortDebugString());
  };
  int with_rows = 0;
  for (int round = 0; round < 40; ++round) {
    v1::TagsRequest request;
    request.set_limit(10000);
    request.set_waiters(100);
    const uint64_t start = kTestStartUnixNs + random() % 150 * kMinute + random() % 60 * kSecond;
    *request.mutable_range() = Range(start, start + (1 + random() % 120) * kMinute);
    if (random() % 4 == 0) request.add_devices("sd1");
    SCOPED_TRACE(request.ShortDebugString());
    v1::TagsResponse want, got;
    grpc::ClientContext one, two;
    ASSERT_TRUE(memory->Tags(&one, request, &want).ok());
    ASSERT_TRUE(disk->Tags(&two, request, &got).ok());
    EXPECT_EQ(lines(got), lines(want));
    EXPECT_EQ(got.summary().hosts_with_data(), want.summary().hosts_with_data());
    with_rows += want.rows_size() > 0;
  }
  EXPECT_GT(with_rows, 25);
}

TEST_F(StoresAgreeTest, SeriesCompareAndIntent) {
  Served memory(&memory_, UINT64_MAX);
  Served disk(disk_.get(), 0);
  v1::TopRequest top;
  top.add_by(v1::DIMENSION_INTENT);
  *top.mutable_range() = Range(kTestStartUnixNs, kTestStartUnixNs + 4 * kHour);
  v1::TopResponse intents;
  grpc::ClientContext first;
  ASSERT_TRUE(memory->Top(&first, top, &intents).ok());
  for (const auto& row : intents.rows()) {
    const std::string& id = row.key(0).text();
    if (id.empty()) continue;
    SCOPED_TRACE(id);
    grpc::ClientContext a, b, c, d, e, f;

    v1::SeriesRequest series;
    series.mutable_filter()->add_intents(id);
    series.set_step_ns(10 * kMinute);
    *series.mutable_range() = Range(kTestStartUnixNs, kTestStartUnixNs + 170 * kMinute);
    v1::SeriesResponse lines[2];
    ASSERT_TRUE(memory->Series(&a, series, &lines[0]).ok());
    ASSERT_TRUE(disk->Series(&b, series, &lines[1]).ok());
    ASSERT_EQ(lines[0].lines_size(), 1);
    for (v1::SeriesResponse& l : lines) l.clear_summary();
    EXPECT_EQ(lines[0].ShortDebugString(), lines[1].ShortDebugString());

    v1::GetIntentRequest get;
    get.set_intent(id);
    *get.mutable_range() = top.range();
    v1::GetIntentResponse got[2];
    ASSERT_TRUE(memory->GetIntent(&c, get, &got[0]).ok());
    ASSERT_TRUE(disk->GetIntent(&d, get, &got[1]).ok());
    EXPECT_EQ(got[0].as_dirtier().ShortDebugString(), got[1].as_dirtier().ShortDebugString());
    EXPECT_EQ(got[0].as_issuer().ShortDebugString(), got[1].as_issuer().ShortDebugString());
    EXPECT_EQ(got[0].hosts_size(), got[1].hosts_size());
    EXPECT_EQ(got[0].short_id(), got[1].short_id());

    v1::CompareHostsRequest compare;
    compare.set_intent(id);
    *compare.mutable_range() = top.range();
    v1::CompareHostsResponse compared[2];
    ASSERT_TRUE(memory->CompareHosts(&e, compare, &compared[0]).ok());
    ASSERT_TRUE(disk->CompareHosts(&f, compare, &compared[1]).ok());
    for (v1::CompareHostsResponse& r : compared) r.clear_summary();
    EXPECT_EQ(compared[0].hosts_size(), kHosts);
    EXPECT_EQ(compared[0].hosts(0).ShortDebugString(), compared[1].hosts(0).ShortDebugString());
    EXPECT_EQ(compared[0].median_bytes_per_second(), compared[1].median_bytes_per_second());
  }
}

}  // namespace
}  // namespace fleetblame::aggregator
