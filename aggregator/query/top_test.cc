// SPDX-License-Identifier: Apache-2.0
//
// Top, ListHosts and Coverage against answers worked out by hand.
#include "absl/strings/str_join.h"
#include "aggregator/query/testing/query_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Stub = v1::Query::Stub;

// Two hosts, one minute. postgres dirties what the flusher writes; cp reads and writes.
class TopTest : public ::testing::Test {
 protected:
  TopTest() {
    db1_ = f_.Host("db1", {{"role", "db"}});
    web1_ = f_.Host("web1", {{"role", "web"}});
    dirty_ = f_.Intent("9f3c1a01", {"ext4_da_write_end", "vfs_write", "write"}, "background");
    flush_ = f_.Intent("9f3c1a02", {"submit_bio", "wb_workfn"}, "");
    read_ = f_.Intent("41b07e", {"ext4_mpage_readpages", "read"}, "");
    postgres_ = f_.Actor("postgres", "/system.slice/postgresql.service");
    flusher_ = f_.Actor("kworker/u4:1");
    cp_ = f_.Actor("cp", "/user.slice");
    DeviceNumber sda1 = f_.Device("sda", "serial-1");
    DeviceNumber sda2 = f_.Device("sda", "serial-2");
    file_ = f_.File("/var/lib/pg/base", 11);

    BlockRow blame = Write(dirty_, postgres_, sda1, 10, 40960);
    blame.issuer_intent = flush_;
    blame.issuer_actor = flusher_;
    blame.file = file_;
    blame.wait_ns = 1000;
    blame.io_ns = 20000;
    blame.wait.Add(5, 10);
    blame.io.Add(70, 8);
    blame.io.Add(90, 2);
    BlockRow read = Write(read_, cp_, sda2, 4, 16384);
    read.operation = v1::OPERATION_READ;
    read.confidence = v1::CONFIDENCE_ISSUER;
    read.issuer_intent = read_;
    read.issuer_actor = cp_;
    read.io.Add(60, 4);
    BlockRow other = Write(dirty_, cp_, sda2, 1, 4096);
    other.confidence = v1::CONFIDENCE_INODE;
    other.errors = 1;
    other.requeues = 2;
    other.io.Add(70, 1);
    f_.store().AddRows(db1_, kDawn, kDawn + 10 * kSecond, {blame});
    f_.store().AddRows(db1_, kDawn + 10 * kSecond, kDawn + 20 * kSecond, {blame});
    f_.store().AddRows(web1_, kDawn, kDawn + 10 * kSecond, {read, other});
  }

  v1::TopResponse Top(v1::TopRequest request) {
    if (!request.has_range()) *request.mutable_range() = Range(kDawn, kDawn + kMinute);
    v1::TopResponse response;
    grpc::Status status = f_.Call(&Stub::Top, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  static v1::TopRequest By(std::vector<v1::Dimension> by) {
    v1::TopRequest request;
    for (v1::Dimension d : by) request.add_by(d);
    return request;
  }
  static std::vector<std::string> Keys(const v1::TopResponse& response) {
    std::vector<std::string> keys;
    for (const auto& row : response.rows()) {
      std::vector<std::string> texts;
      for (const auto& value : row.key()) texts.push_back(value.text());
      keys.push_back(absl::StrJoin(texts, "|"));
    }
    return keys;
  }

  QueryFixture f_;
  HostNumber db1_, web1_;
  IntentNumber dirty_, flush_, read_;
  ActorNumber postgres_, flusher_, cp_;
  FileNumber file_;
};

// Time in flight of a large fleet over a month does not fit, nor what a host says that sends
// nonsense.
TEST_F(TopTest, SumsThatDoNotFitStayAtTheLargestNumber) {
  BlockRow row;
  row.operation = v1::OPERATION_WRITE;
  row.confidence = v1::CONFIDENCE_ESTIMATED;
  row.device = f_.Device("sdz", "serial-z");
  row.ios = row.bytes = row.wait_ns = row.io_ns = UINT64_MAX - 5;
  for (HostNumber host : {db1_, web1_}) {
    f_.store().AddRows(host, kDawn, kDawn + 10 * kSecond, {row});
    f_.store().AddLoss(host, kDawn, kDawn + 10 * kSecond, "ios_estimated_variance", UINT64_MAX);
  }
  v1::TopRequest request = By({v1::DIMENSION_DEVICE});
  request.mutable_filter()->add_devices("sdz");
  const v1::TopResponse response = Top(request);
  ASSERT_EQ(response.rows_size(), 1);
  const v1::Metrics& metrics = response.rows(0).metrics();
  EXPECT_EQ(metrics.ios(), UINT64_MAX);
  EXPECT_EQ(metrics.estimated_ios(), UINT64_MAX);
  EXPECT_EQ(metrics.written_bytes(), UINT64_MAX);
  EXPECT_EQ(metrics.wait_ns(), UINT64_MAX);
  EXPECT_EQ(metrics.io_ns(), UINT64_MAX);
  EXPECT_EQ(response.summary().losses().at("ios_estimated_variance"), UINT64_MAX);
  EXPECT_EQ(response.summary().bytes_by_confidence().at("estimated"), UINT64_MAX);
}

TEST_F(TopTest, WithoutDimensionsThereIsOneRow) {
  v1::TopResponse r = Top({});
  ASSERT_EQ(r.rows_size(), 1);
  const v1::Metrics& m = r.rows(0).metrics();
  EXPECT_EQ(m.ios(), 25u);
  EXPECT_EQ(m.bytes(), 2 * 40960u + 16384 + 4096);
  EXPECT_EQ(m.read_bytes(), 16384u);
  EXPECT_EQ(m.written_bytes(), 2 * 40960u + 4096);
  EXPECT_EQ(m.wait_ns(), 2000u);
  EXPECT_EQ(m.io_ns(), 40000u);
  EXPECT_EQ(m.errors(), 1u);
  EXPECT_EQ(m.requeues(), 2u);
  EXPECT_EQ(m.hosts(), 2u);
  EXPECT_THAT(m.wait().buckets(), ElementsAre(5));
  EXPECT_THAT(m.wait().counts(), ElementsAre(20));
  EXPECT_THAT(m.io().buckets(), ElementsAre(60, 70, 90));
  EXPECT_THAT(m.io().counts(), ElementsAre(4, 17, 4));
}

// The same 4 KiB on an LVM volume and twice on the disks below it, and 1 KiB of a plain disk.
class LayersTest : public TopTest {
 protected:
  LayersTest() {
    v1::Device volume;
    volume.set_name("dm-0");
    volume.set_alias("vg-root");
    volume.set_persistent_id("LVM-1");
    volume.set_stacked(true);
    v1::Device below;
    below.set_name("sdb2");
    below.set_disk("sdb");
    below.set_top("dm-0");
    v1::Device plain;
    plain.set_name("sdc");
    FakeStore& store = f_.store();
    host_ = f_.Host("stacked");
    store.AddRows(host_, kDawn + 30 * kSecond, kDawn + 40 * kSecond,
                  {Write(dirty_, postgres_, store.InternDevice(volume), 1, 4096),
                   Write(dirty_, postgres_, store.InternDevice(below), 2, 8192),
                   Write(dirty_, postgres_, store.InternDevice(plain), 1, 1024)});
  }

  v1::TopResponse Ask(v1::Layer layer, std::vector<std::string> devices = {}) {
    v1::TopRequest request = By({v1::DIMENSION_DEVICE, v1::DIMENSION_TOP_DEVICE});
    request.set_selector("{host=\"stacked\"}");
    request.mutable_filter()->set_layer(layer);
    for (const std::string& device : devices) request.mutable_filter()->add_devices(device);
    return Top(request);
  }

  HostNumber host_;
};

TEST_F(LayersTest, ASumLooksAtOneLayer) {
  v1::TopResponse r = Ask(v1::LAYER_UNSPECIFIED);
  EXPECT_THAT(Keys(r), ElementsAre("dm-0|dm-0", "sdc|sdc"));
  EXPECT_EQ(r.summary().written_bytes(), 5120u);
  EXPECT_EQ(r.summary().layer(), v1::LAYER_TOP);
  EXPECT_TRUE(r.summary().stacked_devices());
  EXPECT_EQ(r.rows(0).key(0).device().alias(), "vg-root");
  r = Ask(v1::LAYER_LEAF);
  EXPECT_THAT(Keys(r), ElementsAre("sdb|dm-0", "sdc|sdc"));
  EXPECT_EQ(r.summary().written_bytes(), 9216u);
  r = Ask(v1::LAYER_ANY);
  EXPECT_THAT(Keys(r), ElementsAre("sdb|dm-0", "dm-0|dm-0", "sdc|sdc"));
}

TEST_F(LayersTest, WhoNamesADeviceMeansWhatItDid) {
  EXPECT_THAT(Keys(Ask(v1::LAYER_UNSPECIFIED, {"sdb"})), ElementsAre("sdb|dm-0"));
  EXPECT_THAT(Keys(Ask(v1::LAYER_UNSPECIFIED, {"sdb2"})), ElementsAre("sdb|dm-0"));
  EXPECT_THAT(Keys(Ask(v1::LAYER_UNSPECIFIED, {"vg-root"})), ElementsAre("dm-0|dm-0"));
  EXPECT_THAT(Keys(Ask(v1::LAYER_UNSPECIFIED, {"LVM-1"})), ElementsAre("dm-0|dm-0"));
  EXPECT_THAT(Keys(Ask(v1::LAYER_TOP, {"sdb"})), IsEmpty());
}

TEST_F(LayersTest, WithoutStacksAllLayersAreTheSame) {
  v1::TopRequest request;
  request.set_selector("{host=\"db1\"}");
  EXPECT_FALSE(Top(request).summary().stacked_devices());
}

TEST_F(TopTest, SummarySaysWhatItRestsOn) {
  f_.Host("idle");
  v1::Summary s = Top({}).summary();
  EXPECT_EQ(s.start_unix_ns(), kDawn);
  EXPECT_EQ(s.end_unix_ns(), kDawn + kMinute);
  EXPECT_EQ(s.hosts_matched(), 3u);
  EXPECT_EQ(s.hosts_with_data(), 2u);
  EXPECT_EQ(s.read_bytes(), 16384u);
  EXPECT_EQ(s.written_bytes(), 2 * 40960u + 4096);
  EXPECT_EQ(s.resolution_ns(), 10 * kSecond);
  EXPECT_EQ(s.rows_scanned(), 4u);
  EXPECT_THAT(
      s.bytes_by_confidence(),
      UnorderedElementsAre(Pair("exact", 2 * 40960), Pair("inode", 4096), Pair("issuer", 16384)));
  EXPECT_THAT(s.warnings(), ElementsAre("1 of 3 matched hosts have no data in this range."));
}

TEST_F(TopTest, GapsSkewAndLossesAreSaid) {
  f_.Host("late", {}, "6.1.0", -static_cast<int64_t>(11 * kSecond));
  v1::Gap gap;
  gap.set_start_unix_ns(kDawn + 20 * kSecond);
  gap.set_end_unix_ns(kDawn + 30 * kSecond);
  gap.set_cause("spool_full");
  ASSERT_TRUE(f_.store().AddGap(db1_, gap).ok());
  f_.store().AddLoss(db1_, kDawn, kDawn + 10 * kSecond, "rows_nomem", 3);
  f_.store().AddLoss(web1_, kDawn, kDawn + 10 * kSecond, "rows_nomem", 4);
  f_.store().AddLoss(web1_, kDawn, kDawn + 10 * kSecond, "act_nomem", 2);
  v1::Summary s = Top({}).summary();
  ASSERT_EQ(s.gaps_size(), 1);
  EXPECT_EQ(s.gaps_total(), 1u);
  EXPECT_EQ(s.gaps(0).host_id(), "db1");
  EXPECT_EQ(s.gaps(0).hostname(), "db1.example");
  EXPECT_EQ(s.gaps(0).gap().cause(), "spool_full");
  EXPECT_THAT(s.skewed_hosts(), ElementsAre("late.example"));
  EXPECT_THAT(s.losses(), UnorderedElementsAre(Pair("rows_nomem", 7), Pair("act_nomem", 2)));
  EXPECT_THAT(
      s.warnings(),
      ElementsAre(HasSubstr("1 of 3 matched hosts have no data"), HasSubstr("1 gap on 1 host"),
                  HasSubstr("clock of 1 matched host is more than 10 s"),
                  HasSubstr("was lost (rows_nomem 7)"), HasSubstr("lacks who made it")));
  // Outside of the range nothing of it matters.
  v1::TopRequest later;
  *later.mutable_range() = Range(kDawn + kMinute, kDawn + 2 * kMinute);
  s = Top(later).summary();
  EXPECT_EQ(s.gaps_total(), 0u);
  EXPECT_THAT(s.losses(), IsEmpty());
}

TEST_F(TopTest, CountersThatMeanNoLossAreShownButWarnOfNothing) {
  f_.store().AddLoss(db1_, kDawn, kDawn + 10 * kSecond, "bio_reused", 33);
  f_.store().AddLoss(db1_, kDawn, kDawn + 10 * kSecond, "ledger_overflow", 2);
  v1::Summary s = Top({}).summary();
  EXPECT_THAT(s.losses(), UnorderedElementsAre(Pair("bio_reused", 33), Pair("ledger_overflow", 2)));
  EXPECT_THAT(s.warnings(), IsEmpty());
}

TEST_F(TopTest, GroupsByEveryDimension) {
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_HOST}))), ElementsAre("db1.example", "web1.example"));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_COMM}))), ElementsAre("postgres", "cp"));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_CGROUP}))),
              ElementsAre("/system.slice/postgresql.service", "/user.slice"));
  // Two disks, one name.
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_DEVICE}))), ElementsAre("sda"));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_OPERATION}))), ElementsAre("write", "read"));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_REASON}))), ElementsAre("background", ""));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_FILE}))), ElementsAre("/var/lib/pg/base", ""));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_CONFIDENCE}))), ElementsAre("exact", "issuer", "inode"));
  EXPECT_THAT(Keys(Top(By({v1::DIMENSION_COMM, v1::DIMENSION_OPERATION}))),
              ElementsAre("postgres|write", "cp|read", "cp|write"));
}

TEST_F(TopTest, IntentsComeWithFramesAndShortId) {
  v1::TopResponse r = Top(By({v1::DIMENSION_INTENT}));
  ASSERT_EQ(r.rows_size(), 2);
  const v1::DimensionValue& v = r.rows(0).key(0);
  EXPECT_EQ(v.dimension(), v1::DIMENSION_INTENT);
  EXPECT_EQ(v.text(), "9f3c1a01000000000000000000000000");
  EXPECT_EQ(v.short_id(), "9f3c1a01");  // 9f3c1a02… exists
  EXPECT_EQ(v.modifier(), "background");
  EXPECT_THAT(v.frames(), ElementsAre("ext4_da_write_end", "vfs_write", "write"));
  EXPECT_EQ(r.rows(0).metrics().hosts(), 2u);
  EXPECT_EQ(r.rows(1).key(0).short_id(), "41b07e");
  EXPECT_EQ(r.rows(1).metrics().hosts(), 1u);
}

TEST_F(TopTest, IssuerSide) {
  v1::TopRequest request = By({v1::DIMENSION_COMM, v1::DIMENSION_REASON});
  request.set_side(v1::SIDE_ISSUER);
  // The reason stays that of the dirtier's intent.
  EXPECT_THAT(Keys(Top(request)), ElementsAre("kworker/u4:1|background", "cp|", "|background"));
  request = By({v1::DIMENSION_INTENT});
  request.set_side(v1::SIDE_ISSUER);
  v1::TopResponse r = Top(request);
  EXPECT_THAT(Keys(r), ElementsAre("9f3c1a02000000000000000000000000",
                                   "41b07e00000000000000000000000000", ""));
}

TEST_F(TopTest, FileValues) {
  v1::TopResponse r = Top(By({v1::DIMENSION_FILE}));
  EXPECT_EQ(r.rows(0).key(0).file().inode(), 11u);
  EXPECT_FALSE(r.rows(1).key(0).has_file());
}

TEST_F(TopTest, FilesWithOnePathAreOneFile) {
  BlockRow row = Write(dirty_, cp_, 1, 1, 1 << 20);
  row.file = f_.File("/etc/same", 1);
  BlockRow same = row;
  same.file = f_.File("/etc/same", 2);
  BlockRow cut = row;
  cut.file = f_.File("…/same", 3);
  BlockRow cut_too = row;
  cut_too.bytes += 1;
  cut_too.file = f_.File("…/same", 4);
  f_.store().AddRows(db1_, kDawn + 30 * kSecond, kDawn + 40 * kSecond, {row, same, cut, cut_too});
  v1::TopResponse r = Top(By({v1::DIMENSION_FILE}));
  ASSERT_GE(r.rows_size(), 3);
  EXPECT_EQ(r.rows(0).key(0).text(), "/etc/same");
  EXPECT_EQ(r.rows(0).metrics().bytes(), 2u << 20);
  EXPECT_EQ(r.rows(0).key(0).file().inode(), 0u);  // it differs
  EXPECT_EQ(r.rows(1).key(0).text(), "…/same");
  EXPECT_EQ(r.rows(1).key(0).file().inode(), 4u);
  EXPECT_EQ(r.rows(2).key(0).file().inode(), 3u);
}

TEST_F(TopTest, FiltersNarrow) {
  auto bytes = [&](auto set) {
    v1::TopRequest request;
    set(request.mutable_filter());
    v1::TopResponse r = Top(request);
    return r.rows_size() == 0 ? 0 : r.rows(0).metrics().bytes();
  };
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_comms("cp"); }), 20480u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_comms("c"); }), 0u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_comms("cp"), f->add_comms("postgres"); }), 102400u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_devices("sda"); }), 102400u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_devices("sdb"); }), 0u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_operations(v1::OPERATION_READ); }), 16384u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_confidences(v1::CONFIDENCE_INODE); }), 4096u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_reasons("background"); }), 86016u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->add_intents("41b0"); }), 16384u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->set_cgroup_regex("\\.service$"); }), 81920u);
  EXPECT_EQ(bytes([](v1::Filter* f) { f->set_file_regex("/pg/"); }), 81920u);
  EXPECT_EQ(
      bytes([](v1::Filter* f) { f->add_comms("cp"), f->add_operations(v1::OPERATION_WRITE); }),
      4096u);
}

TEST_F(TopTest, SelectorChoosesHosts) {
  v1::TopRequest request = By({v1::DIMENSION_HOST});
  request.set_selector("role=\"web\"");
  v1::TopResponse r = Top(request);
  EXPECT_THAT(Keys(r), ElementsAre("web1.example"));
  EXPECT_EQ(r.summary().hosts_matched(), 1u);
  request.set_selector("host=~\"db.*\"");
  EXPECT_THAT(Keys(Top(request)), ElementsAre("db1.example"));
  request.set_selector("role=\"mail\"");
  r = Top(request);
  EXPECT_EQ(r.rows_size(), 0);
  EXPECT_THAT(r.summary().warnings(), ElementsAre("None of 2 hosts matches the selector."));
}

TEST_F(TopTest, LimitAndOrder) {
  v1::TopRequest request = By({v1::DIMENSION_CONFIDENCE});
  request.set_limit(1);
  v1::TopResponse r = Top(request);
  EXPECT_THAT(Keys(r), ElementsAre("exact"));
  EXPECT_EQ(r.omitted_groups(), 2u);
  EXPECT_EQ(r.omitted().bytes(), 20480u);
  EXPECT_EQ(r.omitted().ios(), 5u);
  request.set_limit(0);
  request.set_order_by(v1::ORDER_BY_READ_BYTES);
  EXPECT_EQ(Keys(Top(request))[0], "issuer");
  request.set_order_by(v1::ORDER_BY_IO_TIME);
  EXPECT_EQ(Keys(Top(request))[0], "exact");
}

TEST_F(TopTest, WindowsBelongWhereTheyEnd) {
  v1::TopRequest request;
  *request.mutable_range() = Range(kDawn + 12 * kSecond, kDawn + 25 * kSecond);
  v1::TopResponse r = Top(request);
  EXPECT_EQ(r.rows(0).metrics().bytes(), 40960u);
  EXPECT_EQ(r.summary().start_unix_ns(), kDawn + 10 * kSecond);
  EXPECT_EQ(r.summary().end_unix_ns(), kDawn + 25 * kSecond);
  // Neighbouring ranges share no window.
  *request.mutable_range() = Range(kDawn + 12 * kSecond, kDawn + 13 * kSecond);
  EXPECT_EQ(Top(request).rows_size(), 0);
}

TEST_F(TopTest, AbsentRangeIsTheLastHour) {
  v1::TopResponse response;
  f_.now = kDawn + kHour + 15 * kSecond;
  ASSERT_TRUE(f_.Call(&Stub::Top, v1::TopRequest(), &response).ok());
  EXPECT_EQ(response.rows(0).metrics().bytes(), 40960u);
  EXPECT_EQ(response.summary().end_unix_ns(), f_.now);
}

TEST_F(TopTest, ListHosts) {
  f_.hub().HostConnected("web1");
  v1::ListHostsRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::ListHostsResponse r;
  ASSERT_TRUE(f_.Call(&Stub::ListHosts, request, &r).ok());
  ASSERT_EQ(r.hosts_size(), 2);
  const v1::Host& db = r.hosts(0);
  EXPECT_EQ(db.host_id(), "db1");
  EXPECT_EQ(db.hostname(), "db1.example");
  EXPECT_THAT(db.labels(), UnorderedElementsAre(Pair("role", "db")));
  EXPECT_EQ(db.kernel_release(), "6.1.0");
  EXPECT_EQ(db.agent_version(), "1.0");
  EXPECT_EQ(db.tracer(), "bpf");
  EXPECT_EQ(db.first_seen_unix_ns(), kDawn);
  EXPECT_EQ(db.last_seen_unix_ns(), kDawn + kHour);
  EXPECT_FALSE(db.connected());
  EXPECT_EQ(db.written_bytes(), 81920u);
  EXPECT_EQ(db.read_bytes(), 0u);
  EXPECT_TRUE(r.hosts(1).connected());
  EXPECT_EQ(r.hosts(1).read_bytes(), 16384u);
  EXPECT_EQ(r.omitted(), 0u);

  request.set_limit(1);
  r.Clear();
  ASSERT_TRUE(f_.Call(&Stub::ListHosts, request, &r).ok());
  EXPECT_EQ(r.hosts_size(), 1);
  EXPECT_EQ(r.omitted(), 1u);
  EXPECT_EQ(r.summary().hosts_matched(), 2u);
}

TEST_F(TopTest, CoverageSaysHowWellEachDeviceIsBlamed) {
  v1::CoverageSample books;
  books.set_device(f_.Device("sda", "serial-2"));
  books.set_direction(v1::OPERATION_WRITE);
  books.set_recorded_bytes(4096);
  books.set_kernel_bytes(4096);
  f_.store().AddCoverage(web1_, kDawn, kDawn + 10 * kSecond, books);
  books.set_direction(v1::OPERATION_READ);
  f_.store().AddCoverage(web1_, kDawn, kDawn + 10 * kSecond, books);
  v1::CoverageRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::CoverageResponse response;
  ASSERT_TRUE(f_.Call(&Stub::Coverage, request, &response).ok());
  ASSERT_EQ(response.rows_size(), 2);
  for (const auto& row : response.rows()) {
    if (row.direction() == v1::OPERATION_WRITE) {
      EXPECT_THAT(row.bytes_by_confidence(), UnorderedElementsAre(Pair("inode", 4096u)));
    } else {
      EXPECT_THAT(row.bytes_by_confidence(), UnorderedElementsAre(Pair("issuer", 16384u)));
    }
  }
}

TEST_F(TopTest, Coverage) {
  v1::CoverageSample good;
  good.set_device(f_.Device("sda", "serial-1"));
  good.set_direction(v1::OPERATION_WRITE);
  good.set_recorded_bytes(100);
  good.set_kernel_bytes(100);
  good.set_recorded_ios(2);
  good.set_kernel_ios(2);
  v1::CoverageSample lost = good;
  lost.set_recorded_bytes(90);
  lost.set_lost_bytes(10);
  v1::CoverageSample off = good;
  off.set_direction(v1::OPERATION_READ);
  off.set_recorded_bytes(150);
  f_.store().AddCoverage(db1_, kDawn, kDawn + 10 * kSecond, good);
  f_.store().AddCoverage(db1_, kDawn + 10 * kSecond, kDawn + 20 * kSecond, good);
  f_.store().AddCoverage(db1_, kDawn, kDawn + 10 * kSecond, off);
  f_.store().AddCoverage(web1_, kDawn, kDawn + 10 * kSecond, lost);
  v1::CoverageRequest request;
  *request.mutable_range() = Range(kDawn, kDawn + kMinute);
  v1::CoverageResponse r;
  ASSERT_TRUE(f_.Call(&Stub::Coverage, request, &r).ok());
  ASSERT_EQ(r.rows_size(), 3);
  EXPECT_EQ(r.rows(0).host_id(), "db1");
  EXPECT_EQ(r.rows(0).direction(), v1::OPERATION_READ);
  EXPECT_EQ(r.rows(0).recorded_bytes(), 150u);
  EXPECT_EQ(r.rows(1).hostname(), "web1.example");
  EXPECT_EQ(r.rows(1).lost_bytes(), 10u);
  EXPECT_EQ(r.rows(2).kernel_bytes(), 200u);
  EXPECT_EQ(r.rows(2).recorded_ios(), 4u);
  EXPECT_EQ(r.rows(2).device(), "sda");
  EXPECT_EQ(r.summary().bytes_by_confidence().at("exact"), 81920u);
  request.set_limit(1);
  r.Clear();
  ASSERT_TRUE(f_.Call(&Stub::Coverage, request, &r).ok());
  EXPECT_EQ(r.rows_size(), 1);
  EXPECT_EQ(r.omitted(), 2u);
}

TEST(EmptyStoreTest, EveryRpcAnswers) {
  QueryFixture f;
  v1::TopResponse top;
  ASSERT_TRUE(f.Call(&Stub::Top, v1::TopRequest(), &top).ok());
  EXPECT_EQ(top.rows_size(), 0);
  EXPECT_THAT(top.summary().warnings(),
              ElementsAre("No host has ever sent data to this aggregator."));
  EXPECT_EQ(top.summary().resolution_ns(), 0u);
  v1::ListHostsResponse hosts;
  ASSERT_TRUE(f.Call(&Stub::ListHosts, v1::ListHostsRequest(), &hosts).ok());
  EXPECT_EQ(hosts.hosts_size(), 0);
  v1::CoverageResponse coverage;
  ASSERT_TRUE(f.Call(&Stub::Coverage, v1::CoverageRequest(), &coverage).ok());
  EXPECT_EQ(coverage.rows_size(), 0);
  v1::SeriesResponse series;
  ASSERT_TRUE(f.Call(&Stub::Series, v1::SeriesRequest(), &series).ok());
  EXPECT_EQ(series.lines_size(), 0);
  EXPECT_GT(series.incomplete_steps_size(), 0);
  v1::SearchIntentsRequest search;
  search.set_frame_regex("x");
  v1::SearchIntentsResponse found;
  ASSERT_TRUE(f.Call(&Stub::SearchIntents, search, &found).ok());
  EXPECT_EQ(found.matches_size(), 0);
  v1::GetIntentRequest get;
  get.set_intent("9f3c1a");
  v1::GetIntentResponse intent;
  EXPECT_EQ(f.Call(&Stub::GetIntent, get, &intent).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::CompareHostsRequest compare;
  compare.set_intent("9f3c1a");
  v1::CompareHostsResponse compared;
  EXPECT_EQ(f.Call(&Stub::CompareHosts, compare, &compared).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace fleetblame::aggregator
