// SPDX-License-Identifier: Apache-2.0
//
// Random fleets and random questions: every answer must equal what a model computes that looks at
// each row in turn and knows nothing of scans, keys or budgets.
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/query/testing/query_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

using Stub = v1::Query::Stub;

// A row with everything spelled out.
struct ModelRow {
  size_t host = 0;
  uint64_t start = 0, end = 0;
  std::string dirtier_intent, issuer_intent, modifier;
  std::string dirtier_comm, issuer_comm, dirtier_cgroup, issuer_cgroup;
  std::string device, path;
  BlockRow row;
};

struct ModelHost {
  std::string id, role;
};

struct Sum {
  uint64_t ios = 0, bytes = 0, read = 0, written = 0, wait_ns = 0, io_ns = 0, errors = 0,
           requeues = 0;
  std::map<int, uint64_t> wait, io;
  std::set<size_t> hosts;

  void Add(const ModelRow& m) {
    ios += m.row.ios;
    bytes += m.row.bytes;
    if (m.row.operation == v1::OPERATION_READ) read += m.row.bytes;
    if (m.row.operation == v1::OPERATION_WRITE) written += m.row.bytes;
    wait_ns += m.row.wait_ns;
    io_ns += m.row.io_ns;
    errors += m.row.errors;
    requeues += m.row.requeues;
    for (auto [b, c] : m.row.wait.entries()) wait[b] += c;
    for (auto [b, c] : m.row.io.entries()) io[b] += c;
    hosts.insert(m.host);
  }
};

std::map<int, uint64_t> ToMap(const v1::Histogram& h) {
  std::map<int, uint64_t> out;
  for (int i = 0; i < h.buckets_size(); ++i) {
    out[static_cast<int>(h.buckets(i))] = h.counts(i);
  }
  return out;
}

void ExpectEqual(const Sum& want, const v1::Metrics& got, bool hosts_counted,
                 const std::string& what) {
  EXPECT_EQ(got.ios(), want.ios) << what;
  EXPECT_EQ(got.bytes(), want.bytes) << what;
  EXPECT_EQ(got.read_bytes(), want.read) << what;
  EXPECT_EQ(got.written_bytes(), want.written) << what;
  EXPECT_EQ(got.wait_ns(), want.wait_ns) << what;
  EXPECT_EQ(got.io_ns(), want.io_ns) << what;
  EXPECT_EQ(got.errors(), want.errors) << what;
  EXPECT_EQ(got.requeues(), want.requeues) << what;
  EXPECT_EQ(ToMap(got.wait()), want.wait) << what;
  EXPECT_EQ(ToMap(got.io()), want.io) << what;
  if (hosts_counted) {
    EXPECT_EQ(got.hosts(), want.hosts.size()) << what;
  }
}

class Fleet {
 public:
  // With 64 hosts or more the sums of the fleet answer wherever they can.
  Fleet(unsigned seed, size_t host_count, bool rollups) : f(Options(host_count >= 64)), rng_(seed) {
    f.store().EnableRollups(rollups);
    const std::vector<std::string> comms = {"postgres", "cp", "kworker", "jbd2", ""};
    const std::vector<std::string> cgroups = {"/a.slice", "/b.slice/x", ""};
    for (size_t i = 0; i < host_count; ++i) {
      ModelHost h{absl::StrCat("host", i), i % 3 == 0 ? "db" : "web"};
      numbers_.push_back(f.Host(h.id, {{"role", h.role}}));
      hosts.push_back(h);
    }
    const size_t windows = 30;
    for (size_t h = 0; h < host_count; ++h) {
      if (h % 7 == 6) continue;  // never sends anything
      for (size_t w = 0; w < windows; ++w) {
        uint64_t start = kDawn + w * 10 * kSecond;
        std::vector<BlockRow> rows;
        std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, int, int>>
            keys;
        for (size_t n = Random(5); n > 0; --n) {
          ModelRow m;
          m.host = h;
          m.start = start;
          m.end = start + 10 * kSecond;
          size_t i = Random(6);
          m.dirtier_intent = IntentId(i);
          m.modifier = Modifier(i);
          m.row.dirtier_intent = Intent(i);
          size_t j = Random(6);
          m.issuer_intent = IntentId(j);
          m.row.issuer_intent = Intent(j);
          m.dirtier_comm = comms[Random(comms.size())];
          m.dirtier_cgroup = cgroups[Random(cgroups.size())];
          m.row.dirtier_actor = f.Actor(m.dirtier_comm, m.dirtier_cgroup);
          m.issuer_comm = comms[Random(comms.size())];
          m.issuer_cgroup = cgroups[Random(cgroups.size())];
          m.row.issuer_actor = f.Actor(m.issuer_comm, m.issuer_cgroup);
          m.device = absl::StrCat("sd", std::string(1, static_cast<char>('a' + Random(2))));
          m.row.device = f.Device(m.device, absl::StrCat(h));
          if (Random(2) == 0) {
            m.path = absl::StrCat("/f", Random(3));
            m.row.file = f.File(m.path, h);
          }
          m.row.operation = static_cast<v1::Operation>(1 + Random(7));
          m.row.confidence = static_cast<v1::Confidence>(1 + Random(6));
          if (!keys.insert({m.row.dirtier_intent, m.row.issuer_intent, m.row.dirtier_actor,
                            m.row.issuer_actor, m.row.device, m.row.file, m.row.operation,
                            m.row.confidence})
                   .second) {
            continue;
          }
          m.row.ios = 1 + Random(100);
          m.row.bytes = 512 * Random(10000);
          m.row.wait_ns = Random(1000000);
          m.row.io_ns = Random(1000000);
          m.row.errors = Random(2);
          m.row.requeues = Random(3);
          for (size_t k = Random(4); k > 0; --k)
            m.row.wait.Add(static_cast<int>(Random(194)), 1 + Random(9));
          for (size_t k = Random(4); k > 0; --k)
            m.row.io.Add(static_cast<int>(Random(194)), 1 + Random(9));
          rows.push_back(m.row);
          all.push_back(std::move(m));
        }
        f.store().AddRows(numbers_[h], start, start + 10 * kSecond, rows);
      }
    }
  }

  size_t Random(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }
  static std::string IntentId(size_t i) {
    return i == 0 ? "" : absl::StrCat("abcd", i, std::string(27, '0'));
  }
  static std::string Modifier(size_t i) {
    return i % 3 == 1 ? "sync" : i % 3 == 2 ? "periodic" : "";
  }
  IntentNumber Intent(size_t i) {
    if (i == 0) return 0;
    return f.Intent(absl::StrCat("abcd", i), {absl::StrCat("frame_", i), "write"}, Modifier(i));
  }

  QueryFixture f;
  std::vector<ModelHost> hosts;
  std::vector<ModelRow> all;

 private:
  static QueryOptions Options(bool fleet_sums) {
    QueryOptions options;
    options.max_host_blocks = fleet_sums ? 0 : UINT64_MAX;
    return options;
  }

  std::vector<HostNumber> numbers_;
  std::mt19937 rng_;
};

// Question and model of it, drawn together.
struct Question {
  std::string selector;
  v1::TimeRange range;
  v1::Side side = v1::SIDE_DIRTIER;
  std::vector<v1::Dimension> by;
  v1::Filter filter;
  std::function<bool(const ModelRow&)> wanted;
};

std::string Part(const ModelRow& m, v1::Dimension d, bool issuer, const Fleet& fleet) {
  switch (d) {
    case v1::DIMENSION_HOST:
      return fleet.hosts[m.host].id + ".example";
    case v1::DIMENSION_COMM:
      return issuer ? m.issuer_comm : m.dirtier_comm;
    case v1::DIMENSION_CGROUP:
      return issuer ? m.issuer_cgroup : m.dirtier_cgroup;
    case v1::DIMENSION_DEVICE:
      return m.device;
    case v1::DIMENSION_OPERATION: {
      const char* names[] = {"",      "read",         "write", "discard", "write_zeroes",
                             "flush", "secure_erase", "other"};
      return names[m.row.operation];
    }
    case v1::DIMENSION_INTENT:
      return issuer ? m.issuer_intent : m.dirtier_intent;
    case v1::DIMENSION_REASON:
      return m.modifier;
    case v1::DIMENSION_FILE:
      return m.path;
    case v1::DIMENSION_CONFIDENCE: {
      const char* names[] = {"", "exact", "inode", "journal", "cgroup", "issuer", "lost"};
      return names[m.row.confidence];
    }
    default:
      return "?";
  }
}

Question Draw(Fleet& fleet, uint64_t align) {
  Question q;
  std::vector<std::function<bool(const ModelRow&)>> tests;
  const bool issuer = fleet.Random(3) == 0;
  if (issuer) q.side = v1::SIDE_ISSUER;
  if (fleet.Random(2) == 0) {
    q.selector = "role=\"db\"";
    tests.push_back([&fleet](const ModelRow& m) { return fleet.hosts[m.host].role == "db"; });
  }
  uint64_t start = kDawn + fleet.Random(300) * kSecond / align * align;
  uint64_t end = (start + (1 + fleet.Random(300)) * kSecond + align - 1) / align * align;
  q.range = Range(start, end);
  tests.push_back([=](const ModelRow& m) { return m.end > start && m.end <= end; });
  std::vector<int> dimensions = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (size_t n = fleet.Random(4); n > 0; --n) {
    size_t at = fleet.Random(dimensions.size());
    q.by.push_back(static_cast<v1::Dimension>(dimensions[at]));
    dimensions.erase(dimensions.begin() + static_cast<ptrdiff_t>(at));
  }
  if (fleet.Random(4) == 0) {
    q.filter.add_comms("cp");
    q.filter.add_comms("jbd2");
    tests.push_back([issuer](const ModelRow& m) {
      const std::string& comm = issuer ? m.issuer_comm : m.dirtier_comm;
      return comm == "cp" || comm == "jbd2";
    });
  }
  if (fleet.Random(4) == 0) {
    q.filter.add_devices("sda");
    tests.push_back([](const ModelRow& m) { return m.device == "sda"; });
  }
  if (fleet.Random(4) == 0) {
    q.filter.add_operations(v1::OPERATION_WRITE);
    q.filter.add_operations(v1::OPERATION_READ);
    tests.push_back([](const ModelRow& m) { return m.row.operation <= v1::OPERATION_WRITE; });
  }
  if (fleet.Random(4) == 0) {
    q.filter.add_confidences(v1::CONFIDENCE_EXACT);
    tests.push_back([](const ModelRow& m) { return m.row.confidence == v1::CONFIDENCE_EXACT; });
  }
  if (fleet.Random(4) == 0) {
    q.filter.add_intents("abcd2");
    q.filter.add_intents("abcd3");
    tests.push_back([issuer](const ModelRow& m) {
      const std::string& id = issuer ? m.issuer_intent : m.dirtier_intent;
      return id == Fleet::IntentId(2) || id == Fleet::IntentId(3);
    });
  }
  if (fleet.Random(4) == 0) {
    q.filter.add_reasons("sync");
    q.filter.add_reasons("");
    tests.push_back([](const ModelRow& m) { return m.modifier != "periodic"; });
  }
  if (fleet.Random(4) == 0) {
    q.filter.set_cgroup_regex("slice$|x");
    tests.push_back([issuer](const ModelRow& m) {
      return !(issuer ? m.issuer_cgroup : m.dirtier_cgroup).empty();
    });
  }
  if (fleet.Random(4) == 0) {
    q.filter.set_file_regex("^/f[01]$");
    tests.push_back([](const ModelRow& m) { return m.path == "/f0" || m.path == "/f1"; });
  }
  q.wanted = [tests](const ModelRow& m) {
    return std::all_of(tests.begin(), tests.end(), [&](const auto& t) { return t(m); });
  };
  return q;
}

std::string KeyText(const google::protobuf::RepeatedPtrField<v1::DimensionValue>& key) {
  std::vector<std::string> parts;
  for (const auto& v : key) parts.push_back(v.text());
  return absl::StrJoin(parts, "|");
}

std::map<std::string, Sum> Model(const Fleet& fleet, const Question& q) {
  std::map<std::string, Sum> groups;
  for (const ModelRow& m : fleet.all) {
    if (!q.wanted(m)) continue;
    std::vector<std::string> parts;
    for (v1::Dimension d : q.by) parts.push_back(Part(m, d, q.side == v1::SIDE_ISSUER, fleet));
    groups[absl::StrJoin(parts, "|")].Add(m);
  }
  return groups;
}

// Hosts, and whether the store has rolled its windows up.
class ModelTest : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(ModelTest, Top) {
  const auto [hosts, rollups] = GetParam();
  Fleet fleet(11, static_cast<size_t>(hosts), rollups);
  for (int round = 0; round < 60; ++round) {
    Question q = Draw(fleet, kSecond);
    v1::TopRequest request;
    request.set_selector(q.selector);
    *request.mutable_range() = q.range;
    request.set_side(q.side);
    *request.mutable_filter() = q.filter;
    for (v1::Dimension d : q.by) request.add_by(d);
    request.set_limit(10000);
    SCOPED_TRACE(request.ShortDebugString());
    v1::TopResponse r;
    grpc::Status status = fleet.f.Call(&Stub::Top, request, &r);
    ASSERT_TRUE(status.ok()) << status.error_message();

    std::map<std::string, Sum> want = Model(fleet, q);
    ASSERT_EQ(static_cast<size_t>(r.rows_size()), want.size());
    // Over the fleet's sums hosts are not counted.
    auto has = [&](v1::Dimension d) { return std::count(q.by.begin(), q.by.end(), d) > 0; };
    const bool counted = hosts < 64 || !q.selector.empty() || has(v1::DIMENSION_HOST) ||
                         has(v1::DIMENSION_FILE) || q.filter.intents_size() > 0 ||
                         !q.filter.file_regex().empty();
    uint64_t last = UINT64_MAX;
    Sum total;
    for (const auto& row : r.rows()) {
      const std::string key = KeyText(row.key());
      ASSERT_TRUE(want.contains(key)) << key;
      ExpectEqual(want[key], row.metrics(), counted, key);
      EXPECT_LE(row.metrics().bytes(), last);
      last = row.metrics().bytes();
    }
    uint64_t read = 0, written = 0, by_confidence = 0, bytes = 0;
    for (const auto& [key, sum] : want) {
      read += sum.read;
      written += sum.written;
      bytes += sum.bytes;
    }
    for (const auto& [name, value] : r.summary().bytes_by_confidence()) by_confidence += value;
    EXPECT_EQ(r.summary().read_bytes(), read);
    EXPECT_EQ(r.summary().written_bytes(), written);
    EXPECT_EQ(by_confidence, bytes);

    // A limit keeps the largest and sums the others.
    if (want.size() > 2) {
      request.set_limit(2);
      v1::TopResponse cut;
      ASSERT_TRUE(fleet.f.Call(&Stub::Top, request, &cut).ok());
      ASSERT_EQ(cut.rows_size(), 2);
      EXPECT_EQ(KeyText(cut.rows(0).key()), KeyText(r.rows(0).key()));
      EXPECT_EQ(KeyText(cut.rows(1).key()), KeyText(r.rows(1).key()));
      // However it was computed: few of many hosts are read in two passes.
      EXPECT_EQ(cut.rows(0).metrics().ShortDebugString(), r.rows(0).metrics().ShortDebugString());
      EXPECT_EQ(cut.rows(1).metrics().ShortDebugString(), r.rows(1).metrics().ShortDebugString());
      EXPECT_EQ(cut.omitted_groups(), want.size() - 2);
      EXPECT_EQ(
          cut.omitted().bytes() + cut.rows(0).metrics().bytes() + cut.rows(1).metrics().bytes(),
          bytes);
    }
  }
}

TEST_P(ModelTest, Series) {
  const auto [hosts, rollups] = GetParam();
  Fleet fleet(12, static_cast<size_t>(hosts), rollups);
  for (int round = 0; round < 40; ++round) {
    const uint64_t step = fleet.Random(2) == 0 ? kMinute : 10 * kSecond;
    Question q = Draw(fleet, step);
    v1::SeriesRequest request;
    request.set_selector(q.selector);
    *request.mutable_range() = q.range;
    request.set_side(q.side);
    *request.mutable_filter() = q.filter;
    for (v1::Dimension d : q.by) request.add_by(d);
    request.set_step_ns(step);
    request.set_limit(2000);
    SCOPED_TRACE(request.ShortDebugString());
    v1::SeriesResponse r;
    grpc::Status status = fleet.f.Call(&Stub::Series, request, &r);
    ASSERT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, Sum> want = Model(fleet, q);
    ASSERT_EQ(static_cast<size_t>(r.lines_size()), want.size());
    for (const auto& line : r.lines()) {
      const std::string key = KeyText(line.key());
      ASSERT_TRUE(want.contains(key)) << key;
      ExpectEqual(want[key], line.total(), false, key);
      ASSERT_EQ(static_cast<uint64_t>(line.points_size()),
                (q.range.end_unix_ns() - q.range.start_unix_ns()) / step);
      for (int i = 0; i < line.points_size(); ++i) {
        Question one = q;
        const uint64_t from = q.range.start_unix_ns() + static_cast<uint64_t>(i) * step;
        one.wanted = [&q, from, step](const ModelRow& m) {
          return q.wanted(m) && m.end > from && m.end <= from + step;
        };
        Sum sum = Model(fleet, one)[key];
        ASSERT_EQ(line.points(i).bytes(), sum.bytes) << key << " step " << i;
        ASSERT_EQ(line.points(i).ios(), sum.ios) << key << " step " << i;
      }
    }
  }
}

TEST_P(ModelTest, IntentQueries) {
  const auto [hosts, rollups] = GetParam();
  Fleet fleet(13, static_cast<size_t>(hosts), rollups);
  for (size_t i = 1; i < 6; ++i) {
    const std::string id = Fleet::IntentId(i);
    auto sum_if = [&](const std::function<bool(const ModelRow&)>& wanted) {
      Sum sum;
      for (const ModelRow& m : fleet.all) {
        if (wanted(m)) sum.Add(m);
      }
      return sum;
    };
    auto dirtier = [&](const ModelRow& m) { return m.dirtier_intent == id; };
    auto issuer = [&](const ModelRow& m) { return m.issuer_intent == id; };

    v1::GetIntentRequest get;
    get.set_intent(id.substr(0, 6));
    *get.mutable_range() = Range(kDawn, kDawn + kHour);
    get.set_limit(1000);
    v1::GetIntentResponse got;
    ASSERT_TRUE(fleet.f.Call(&Stub::GetIntent, get, &got).ok());
    ExpectEqual(sum_if(dirtier), got.as_dirtier(), true, "as dirtier");
    ExpectEqual(sum_if(issuer), got.as_issuer(), true, "as issuer");
    for (const auto& row : got.hosts()) {
      ExpectEqual(sum_if([&](const ModelRow& m) {
                    return dirtier(m) && fleet.hosts[m.host].id == row.key(0).host_id();
                  }),
                  row.metrics(), true, row.key(0).host_id());
    }
    for (const auto& row : got.comms()) {
      ExpectEqual(sum_if([&](const ModelRow& m) {
                    return dirtier(m) && m.dirtier_comm == row.key(0).text();
                  }),
                  row.metrics(), true, row.key(0).text());
    }
    for (const auto& row : got.files()) {
      ExpectEqual(
          sum_if([&](const ModelRow& m) { return dirtier(m) && m.path == row.key(0).text(); }),
          row.metrics(), true, row.key(0).text());
    }

    v1::SearchIntentsRequest search;
    search.set_frame_regex(absl::StrCat("^frame_", i, "$"));
    *search.mutable_range() = Range(kDawn, kDawn + kHour);
    v1::SearchIntentsResponse found;
    ASSERT_TRUE(fleet.f.Call(&Stub::SearchIntents, search, &found).ok());
    ASSERT_EQ(found.matches_size(), 1);
    ExpectEqual(sum_if([&](const ModelRow& m) { return dirtier(m) || issuer(m); }),
                found.matches(0).metrics(), true, "search");

    v1::CompareHostsRequest compare;
    compare.set_intent(id);
    compare.set_side(i % 2 == 0 ? v1::SIDE_ISSUER : v1::SIDE_DIRTIER);
    *compare.mutable_range() = Range(kDawn, kDawn + kHour);
    compare.set_limit(1000);
    v1::CompareHostsResponse compared;
    ASSERT_TRUE(fleet.f.Call(&Stub::CompareHosts, compare, &compared).ok());
    std::set<size_t> with_rows;
    for (const ModelRow& m : fleet.all) with_rows.insert(m.host);
    EXPECT_EQ(static_cast<size_t>(compared.hosts_size()), with_rows.size());
    double last_z = 1e300;
    for (const auto& row : compared.hosts()) {
      auto on_host = [&](const ModelRow& m) { return fleet.hosts[m.host].id == row.host_id(); };
      Sum mine = sum_if(
          [&](const ModelRow& m) { return on_host(m) && (i % 2 == 0 ? issuer(m) : dirtier(m)); });
      Sum everything = sum_if(on_host);
      ExpectEqual(mine, row.metrics(), true, row.host_id());
      EXPECT_NEAR(row.bytes_per_second(), static_cast<double>(mine.bytes) / 3600, 1e-6);
      EXPECT_NEAR(row.share_of_host(),
                  static_cast<double>(mine.bytes) / static_cast<double>(everything.bytes), 1e-9);
      EXPECT_LE(std::abs(row.robust_z()), last_z);
      last_z = std::abs(row.robust_z());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fleets, ModelTest,
                         ::testing::Combine(::testing::Values(1, 5, 40, 80), ::testing::Bool()));

}  // namespace
}  // namespace fleetblame::aggregator
