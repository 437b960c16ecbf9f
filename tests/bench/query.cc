// SPDX-License-Identifier: Apache-2.0
//
// How long Top takes over a day of a whole fleet: a real store on a scratch directory, filled with
// synthetic hosts and rolled up, asked through gRPC over loopback with questions that vary in
// range, grouping, selector and filter. The end of the day does not fall on a whole hour, so every
// answer is put together from buckets of an hour, ten minutes, one minute and raw windows.
//
//   bazel run //tests/bench:query -- --hosts 1000 --queries 300
//
// The store is filled with windows as long as it takes to make it in a minute: one minute at both
// ends of the day, ten seconds at the very end, ten minutes in between, where only rollups are
// read. Buckets that are over are summed up at once, without the minutes of rest that a store
// gives them for late data: the whole day comes in two minutes here, and six-hour buckets that
// have been over for hours would otherwise be read as hours or not, as the machine was fast or
// slow.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "aggregator/query/query_service.h"
#include "aggregator/store/rocks_store.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/query.grpc.pb.h"
#include "tests/bench/synthetic_fleet.h"

namespace fleetblame::bench {
namespace {

using aggregator::AppendResult;
using aggregator::HostNumber;
using aggregator::HostRecord;
using aggregator::IncomingBatch;
using aggregator::Store;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kMinute = 60 * kSecond;
constexpr uint64_t kHour = 60 * kMinute;
constexpr uint64_t kBootNs = 1'700'000'000 * kSecond;
// 2026-10-01 14:37:20 UTC, the end of the data.
constexpr uint64_t kEnd = 1'790'865'440 * kSecond;
constexpr double kBarP99Ms = 300;

struct Options {
  int hosts = 1000;
  int intents = 50;
  int rows = 50;
  int keys = 60;
  int queries = 300;
  int starving = 50;
  int clients = 1;
  int scan_helpers = 1;
  uint64_t cache_mb = aggregator::RocksStoreOptions().block_cache_bytes >> 20;
  std::string scratch;
  bool keep = false;
  bool reuse = false;
  bool judge = false;
  std::string only;
};

Options ParseOptions(int argc, char** argv, int* exit_code) {
  Options o;
  CLI::App app("Measures Top over 24 hours of a fleet.");
  app.add_option("--hosts", o.hosts)->capture_default_str();
  app.add_option("--intents", o.intents)->capture_default_str();
  app.add_option("--rows", o.rows, "rows in a window of a host")->capture_default_str();
  app.add_option("--keys", o.keys, "distinct rows of a host")->capture_default_str();
  app.add_option("--queries", o.queries)->capture_default_str();
  app.add_option("--starving", o.starving, "hosts whose disks wait for tags in every window")
      ->capture_default_str();
  app.add_option("--scan-helpers", o.scan_helpers, "threads beside a query's own")
      ->capture_default_str();
  app.add_option("--cache-mb", o.cache_mb, "the store's cache")->capture_default_str();
  app.add_option("--scratch", o.scratch, "directory for the store [a new one under /var/tmp]");
  app.add_option("--only", o.only, "only questions whose name contains this");
  app.add_flag("--keep", o.keep, "do not delete the store");
  app.add_flag("--reuse", o.reuse, "ask a store that --keep left in --scratch");
  app.add_flag("--judge", o.judge, "exit 1 when the bar is missed");
  *exit_code = -1;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    *exit_code = app.exit(e);
  }
  return o;
}

// What this process, client and server, has used.
double CpuMs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

double Seconds(absl::Time since) { return absl::ToDoubleSeconds(absl::Now() - since); }

// Windows of a day, oldest first: start and end.
std::vector<std::pair<uint64_t, uint64_t>> Windows() {
  std::vector<std::pair<uint64_t, uint64_t>> out;
  const uint64_t begin = kEnd - 24 * kHour - 10 * kMinute;
  for (uint64_t at = begin; at < kEnd;) {
    uint64_t length = 10 * kMinute;
    if (at < begin + kHour + 10 * kMinute || at >= kEnd - kHour) length = kMinute;
    if (at >= kEnd - 2 * kMinute) length = 10 * kSecond;
    out.emplace_back(at, std::min(at + length, kEnd));
    at = out.back().second;
  }
  return out;
}

// What a host says in a window in which one disk of a controller waits at four hardware queues, on
// behalf of five intents, and the others hold the tags.
v1::TagWaits StarvedWindow(uint64_t seq) {
  v1::TagWaits waits;
  v1::TagSet* set = waits.add_sets();
  set->set_set(1);
  set->set_driver("megaraid_sas");
  set->set_host("host0");
  set->set_model("Synthetic RAID");
  set->set_shared(true);
  for (uint32_t i = 0; i < 20; ++i) {
    v1::TagWaitRow* row = waits.add_rows();
    row->set_device(1);
    row->set_set(1);
    row->set_hctx(i % 4);
    row->set_kind(v1::TAG_KIND_HARDWARE);
    row->set_nr_tags(32);
    row->set_source(v1::TAG_WAIT_SOURCE_FENTRY);
    row->set_intent(1 + i / 4);
    row->set_actor(5 + i / 4);
    row->set_waits(10 + (seq + i) % 7);
    row->set_wait_ns(row->waits() * 2'000'000);
    for (uint32_t b = 0; b < 8; ++b) {
      row->mutable_wait()->add_buckets(90 + i % 3 + b);
      row->mutable_wait()->add_counts(1 + (seq + b) % 3);
    }
  }
  for (uint32_t device = 1; device <= 4; ++device) {
    v1::TagHolder* holder = waits.add_holders();
    holder->set_waiter_device(1);
    holder->set_set(1);
    holder->set_kind(v1::TAG_KIND_HARDWARE);
    holder->set_holder_device(device);
    holder->set_tags_sum(200 * 8);
    holder->set_samples(200);
    holder->set_nr_tags_sum(200 * 32);
  }
  waits.set_source(v1::TAG_WAIT_SOURCE_FENTRY);
  return waits;
}

class Filler {
 public:
  Filler(Store* store, const Options& o) : store_(store), o_(o), fleet_(FleetOptions(o)) {}

  bool Fill() {
    for (int i = 0; i < o_.hosts; ++i) {
      SyntheticHost synthetic(&fleet_, i);
      v1::Hello hello = synthetic.Hello();
      HostRecord record;
      record.host_id = hello.host_id();
      record.hostname = hello.hostname();
      record.labels.insert(hello.labels().begin(), hello.labels().end());
      record.kernel_release = hello.kernel_release();
      record.agent_version = hello.agent_version();
      record.tracer = hello.tracer();
      record.first_seen_unix_ns = kEnd - 25 * kHour;
      record.last_seen_unix_ns = kEnd;
      auto number = store_->UpsertHost(record);
      if (!number.ok()) return Fail(number.status());
      numbers_.push_back(*number);
    }
    uint64_t seq = 0;
    for (const auto& [start, end] : Windows()) {
      if (!AppendWindow(++seq, start, end)) return false;
    }
    return RollUp();
  }

 private:
  static SyntheticFleetOptions FleetOptions(const Options& o) {
    SyntheticFleetOptions f;
    f.rows_per_window = o.rows;
    f.keys_per_host = o.keys;
    f.intents = o.intents;
    f.zstd = false;
    return f;
  }

  static bool Fail(const absl::Status& status) {
    std::fprintf(stderr, "filling the store: %s\n", status.ToString().c_str());
    return false;
  }

  bool AppendWindow(uint64_t seq, uint64_t start, uint64_t end) {
    constexpr int kTogether = 250;
    for (int first = 0; first < o_.hosts; first += kTogether) {
      const int last = std::min(first + kTogether, o_.hosts);
      std::vector<v1::Batch> batches(static_cast<size_t>(last - first));
      std::vector<IncomingBatch> in;
      for (int i = first; i < last; ++i) {
        v1::Batch& batch = batches[static_cast<size_t>(i - first)];
        batch.set_seq(seq);
        batch.set_spool_epoch(1);
        batch.set_dictionary_id(1);
        v1::Window* window = batch.mutable_window();
        window->set_start_boot_ns(start - kBootNs);
        window->set_end_boot_ns(end - kBootNs);
        window->set_realtime_offset_ns(static_cast<int64_t>(kBootNs));
        const v1::RowBlock& rows = fleet_.window(i, seq).rows;
        batch.set_row_count(static_cast<uint32_t>(rows.op_confidence_size()));
        if (seq == 1) {
          *batch.mutable_definitions() = fleet_.DefinitionsOf(i);
          batch.mutable_definitions()->set_dictionary_id(1);
        }
        if (o_.starving > 0 && i % std::max(1, o_.hosts / o_.starving) == 0) {
          *batch.mutable_tag_waits() = StarvedWindow(seq);
        }
        in.push_back({numbers_[static_cast<size_t>(i)], &batch, &rows});
      }
      auto results = store_->Append(in);
      if (!results.ok()) return Fail(results.status());
      for (const AppendResult& r : *results) {
        if (r.outcome == AppendResult::Outcome::kDurable) continue;
        return Fail(r.error.ok() ? absl::InternalError("a batch was not taken") : r.error);
      }
    }
    return true;
  }

  // Until nothing more comes of it; buckets that are not over stay as they are.
  bool RollUp() {
    double last = -1;
    for (int idle = 0; idle < 3;) {
      absl::Status status = store_->Upkeep(kEnd + 40 * kSecond, 5 * kSecond);
      if (!status.ok()) return Fail(status);
      double done = store_->Gauges()["rollups_total"];
      if (done == last) {
        ++idle;
        absl::SleepFor(absl::Seconds(1));
      } else {
        idle = 0;
      }
      last = done;
    }
    return true;
  }

  Store* store_;
  const Options& o_;
  SyntheticFleet fleet_;
  std::vector<HostNumber> numbers_;
};

struct Question {
  std::string name;
  std::function<void(std::mt19937*, v1::TopRequest*)> make;
};

std::string AnyComm(std::mt19937* random) { return absl::StrCat("program-", 5 + (*random)() % 36); }

std::vector<Question> Questions(const std::vector<std::string>& intents) {
  using R = std::mt19937*;
  using T = v1::TopRequest*;
  return {
      {"comm,intent",
       [](R, T t) { t->add_by(v1::DIMENSION_COMM), t->add_by(v1::DIMENSION_INTENT); }},
      {"intent", [](R, T t) { t->add_by(v1::DIMENSION_INTENT); }},
      {"device,op,confidence",
       [](R, T t) {
         t->add_by(v1::DIMENSION_DEVICE);
         t->add_by(v1::DIMENSION_OPERATION);
         t->add_by(v1::DIMENSION_CONFIDENCE);
       }},
      {"intent of one comm, issuer side",
       [](R r, T t) {
         t->add_by(v1::DIMENSION_INTENT);
         t->set_side(v1::SIDE_ISSUER);
         t->mutable_filter()->add_comms(AnyComm(r));
       }},
      {"host", [](R, T t) { t->add_by(v1::DIMENSION_HOST); }},
      {"host,intent",
       [](R, T t) { t->add_by(v1::DIMENSION_HOST), t->add_by(v1::DIMENSION_INTENT); }},
      {"file", [](R, T t) { t->add_by(v1::DIMENSION_FILE); }},
      {"comm,intent of role=db",
       [](R, T t) {
         t->set_selector("role=\"db\"");
         t->add_by(v1::DIMENSION_COMM);
         t->add_by(v1::DIMENSION_INTENT);
       }},
      {"reason,cgroup of dc=~fra.*",
       [](R, T t) {
         t->set_selector("{dc=~\"fra.*\"}");
         t->add_by(v1::DIMENSION_REASON);
         t->add_by(v1::DIMENSION_CGROUP);
       }},
      {"comm,file of one host",
       [](R r, T t) {
         t->set_selector(absl::StrCat("host=\"synthetic-", (*r)() % 1000, "\""));
         t->add_by(v1::DIMENSION_COMM);
         t->add_by(v1::DIMENSION_FILE);
       }},
      {"host of one intent",
       [intents](R r, T t) {
         t->add_by(v1::DIMENSION_HOST);
         t->mutable_filter()->add_intents(intents[(*r)() % intents.size()]);
       }},
      {"comm,intent, reads by io time",
       [](R, T t) {
         t->add_by(v1::DIMENSION_COMM);
         t->add_by(v1::DIMENSION_INTENT);
         t->mutable_filter()->add_operations(v1::OPERATION_READ);
         t->set_order_by(v1::ORDER_BY_IO_TIME);
       }},
  };
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  auto at = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(at, 1, values.size()) - 1];
}

// Asks and returns the milliseconds that it took; negative when it failed.
double Ask(v1::Query::Stub* stub, const v1::TopRequest& request, v1::TopResponse* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  absl::Time begin = absl::Now();
  grpc::Status status = stub->Top(&context, request, response);
  double ms = Seconds(begin) * 1000;
  if (status.ok()) return ms;
  std::fprintf(stderr, "Top: %s\n", status.error_message().c_str());
  return -1;
}

int Measure(Store* store, const Options& o) {
  aggregator::QueryOptions query_options;
  query_options.scan_helpers = o.scan_helpers;
  auto service = aggregator::CreateQueryService(store, nullptr, query_options);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service.get());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  auto stub = v1::Query::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));

  std::mt19937 random(5);
  auto set_range = [&random](v1::TopRequest* t) {
    // Ends within the last half minute and begins a day before: never on a boundary.
    uint64_t end = kEnd - random() % 30 * kSecond - random() % kSecond;
    t->mutable_range()->set_start_unix_ns(end - 24 * kHour);
    t->mutable_range()->set_end_unix_ns(end);
  };
  v1::TopRequest first;
  first.add_by(v1::DIMENSION_INTENT);
  first.set_limit(1000);
  set_range(&first);
  v1::TopResponse response;
  const double cold = Ask(stub.get(), first, &response);
  if (cold < 0) return 1;
  std::vector<std::string> intents;
  for (const auto& row : response.rows()) {
    if (!row.key(0).text().empty()) intents.push_back(row.key(0).text());
  }
  std::printf("first query after start: %.0f ms; %d intents\n\n", cold, response.rows_size());
  if (intents.empty()) return 1;

  std::vector<Question> questions = Questions(intents);
  std::erase_if(questions,
                [&o](const Question& q) { return q.name.find(o.only) == std::string::npos; });
  if (questions.empty() && o.only != "tags") return 1;
  std::map<std::string, std::vector<double>> by_question;
  std::map<std::string, uint64_t> rows;
  std::map<std::string, std::vector<double>> cpu_by_question;
  std::vector<double> all;
  std::vector<double> all_cpu;
  const int asked = questions.empty() ? 0 : o.queries;
  for (int i = -static_cast<int>(questions.size()); i < asked; ++i) {
    const Question& q =
        questions[static_cast<size_t>(i + static_cast<int>(questions.size())) % questions.size()];
    v1::TopRequest request;
    q.make(&random, &request);
    set_range(&request);
    response.Clear();
    const double cpu_before = CpuMs();
    double ms = Ask(stub.get(), request, &response);
    if (ms < 0) return 1;
    const double cpu = CpuMs() - cpu_before;
    rows[q.name] = response.summary().rows_scanned();
    if (i < 0) continue;  // each once to warm up
    all.push_back(ms);
    by_question[q.name].push_back(ms);
    cpu_by_question[q.name].push_back(cpu);
    all_cpu.push_back(cpu);
  }
  // On a busy machine the clock says little; the CPU time of a query is what it costs.
  std::printf("%-34s %8s %8s %8s %8s %12s\n", "top by, 24 h", "queries", "p50 ms", "p99 ms",
              "cpu ms", "rows read");
  for (const Question& q : questions) {
    const std::vector<double>& ms = by_question[q.name];
    if (ms.empty()) continue;
    std::printf("%-34s %8zu %8.1f %8.1f %8.1f %12llu\n", q.name.c_str(), ms.size(),
                Quantile(ms, 0.5), Quantile(ms, 0.99), Quantile(cpu_by_question[q.name], 0.5),
                static_cast<unsigned long long>(rows[q.name]));
  }
  if (o.only.empty() || std::string("tags").find(o.only) != std::string::npos) {
    std::vector<double> tags_ms;
    std::vector<double> tags_cpu;
    uint64_t read = 0;
    for (int i = -1; i < 20; ++i) {
      set_range(&first);
      v1::TagsRequest request;
      *request.mutable_range() = first.range();
      v1::TagsResponse answer;
      grpc::ClientContext context;
      const absl::Time begin = absl::Now();
      const double cpu_before = CpuMs();
      if (!stub->Tags(&context, request, &answer).ok()) return 1;
      if (i < 0) continue;
      tags_ms.push_back(Seconds(begin) * 1000);
      tags_cpu.push_back(CpuMs() - cpu_before);
      read = answer.summary().rows_scanned();
    }
    std::printf("%-34s %8zu %8.1f %8.1f %8.1f %12llu\n", "(tags of the fleet, not in all)",
                tags_ms.size(), Quantile(tags_ms, 0.5), Quantile(tags_ms, 0.99),
                Quantile(tags_cpu, 0.5), static_cast<unsigned long long>(read));
  }
  if (all.empty()) return 0;
  const double p99 = Quantile(all, 0.99);
  std::printf("%-34s %8zu %8.1f %8.1f %8.1f\n", "all", all.size(), Quantile(all, 0.5), p99,
              Quantile(all_cpu, 0.5));
  std::printf("\nbar: p99 <= %.0f ms: %s\n", kBarP99Ms, p99 <= kBarP99Ms ? "met" : "missed");
  stub.reset();
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
  return o.judge && p99 > kBarP99Ms ? 1 : 0;
}

int Main(int argc, char** argv) {
  int exit_code = -1;
  Options o = ParseOptions(argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  const bool own_scratch = o.scratch.empty();
  if (own_scratch) {
    o.scratch = absl::StrCat("/var/tmp/fleetblame-bench-query-", absl::ToUnixMicros(absl::Now()));
  }
  aggregator::RocksStoreOptions store_options;
  store_options.path = o.scratch + "/store";
  store_options.block_cache_bytes = o.cache_mb << 20;
  store_options.rollup_settle_ns = {};
  std::error_code error;
  if (!o.reuse) std::filesystem::remove_all(store_options.path, error);
  std::filesystem::create_directories(o.scratch, error);
  int result = 1;
  {
    auto store = aggregator::OpenRocksStore(store_options);
    if (!store.ok()) {
      std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
      return 1;
    }
    absl::Time begin = absl::Now();
    bool ready = true;
    if (!o.reuse) {
      ready = Filler(store->get(), o).Fill();
      auto gauges = (*store)->Gauges();
      std::printf(
          "%d hosts x %d intents, %.1f million rows stored and rolled up in %.0f s, %.0f MB "
          "on disk, %.0f buckets not over\n",
          o.hosts, o.intents, gauges["rows_total"] / 1e6, Seconds(begin),
          gauges["disk_bytes"] / 1e6, gauges["rollups_pending"]);
    }
    if (ready) result = Measure(store->get(), o);
  }
  if (!o.keep && !o.reuse) std::filesystem::remove_all(o.scratch, error);
  return result;
}

}  // namespace
}  // namespace fleetblame::bench

int main(int argc, char** argv) { return fleetblame::bench::Main(argc, argv); }
