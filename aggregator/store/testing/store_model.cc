// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/testing/store_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kBootUnixNs = 1'780'000'000ull * kTestSecondNs;
constexpr uint32_t kIntents = 6;
constexpr uint32_t kActors = 5;
constexpr uint32_t kDevices = 2;
constexpr uint32_t kFiles = 12;

std::string IdOf(uint32_t identity) {
  std::string id(16, '\0');
  id[0] = static_cast<char>(0xa0 + identity);
  id[15] = static_cast<char>(identity);
  return id;
}

std::string HostName(int index) { return absl::StrCat("host-", index); }

std::string JoinWords(const std::string& host, const std::string& di, const std::string& ii,
                      const std::string& da, const std::string& ia, const std::string& device,
                      const std::string& file, int op, int confidence, KeyDetail detail) {
  return absl::StrCat(detail == KeyDetail::kFleet ? "" : host, "|", di, "|", ii, "|", da, "|", ia,
                      "|", device, "|", detail == KeyDetail::kAll ? file : "", "|", op, "|",
                      confidence);
}

std::string ActorWords(const v1::Actor& actor) {
  return absl::StrCat(actor.comm(), "@", actor.cgroup());
}
std::string DeviceWords(const v1::Device& device, KeyDetail detail) {
  return detail == KeyDetail::kFleet ? device.name()
                                     : absl::StrCat(device.name(), "/", device.persistent_id());
}
std::string IntentWords(const v1::Intent& intent) {
  return absl::BytesToHexString(intent.intent_id());
}

// Resolves numbers by a view, remembering the answers.
class Resolver {
 public:
  explicit Resolver(const ReadView& view) : view_(view) {
    for (const HostRecord& host : view.Hosts()) hosts_[host.number] = host.host_id;
  }
  std::string Words(HostNumber host, const BlockRow& row, KeyDetail detail) {
    std::string device;
    auto d = view_.Device(row.device);
    EXPECT_TRUE(d.ok()) << d.status() << " device " << row.device;
    if (d.ok()) device = DeviceWords(*d, detail);
    return JoinWords(hosts_[host], Intent(row.dirtier_intent), Intent(row.issuer_intent),
                     Actor(row.dirtier_actor), Actor(row.issuer_actor), device, File(row.file),
                     row.operation, row.confidence, detail);
  }

 private:
  std::string Intent(uint32_t n) {
    if (n == 0) return "";
    std::string& words = intents_[n];
    if (words.empty()) {
      auto intent = view_.Intent(n);
      EXPECT_TRUE(intent.ok()) << intent.status();
      if (intent.ok()) words = IntentWords(*intent);
    }
    return words;
  }
  std::string Actor(uint32_t n) {
    if (n == 0) return "";
    auto actor = view_.Actor(n);
    EXPECT_TRUE(actor.ok()) << actor.status();
    return actor.ok() ? ActorWords(*actor) : "";
  }
  std::string File(uint32_t n) {
    if (n == 0) return "";
    auto file = view_.File(n);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->path() : "";
  }
  const ReadView& view_;
  std::map<uint32_t, std::string> hosts_;
  std::map<uint32_t, std::string> intents_;
};

class Collector {
 public:
  Collector(const ReadView& view, KeyDetail detail) : resolver_(view), detail_(detail) {}
  bool Take(const ScannedBlock& block, std::span<const IntentNumber> only = {}) {
    EXPECT_TRUE(ValidateRowBlock(*block.rows, 1 << 20).ok());
    EXPECT_LT(block.start_unix_ns, block.end_unix_ns);
    RowBlockReader reader(*block.rows);
    BlockRow row;
    while (reader.Next(&row)) {
      auto wanted = [&only](uint32_t n) {
        return std::find(only.begin(), only.end(), n) != only.end();
      };
      if (!only.empty() && !wanted(row.dirtier_intent) && !wanted(row.issuer_intent)) continue;
      sums[resolver_.Words(block.host, row, detail_)].Add(row);
    }
    return true;
  }
  RowSums sums;

 private:
  Resolver resolver_;
  const KeyDetail detail_;
};

}  // namespace

void RowSum::Add(const BlockRow& row) {
  ios += row.ios;
  bytes += row.bytes;
  wait_ns += row.wait_ns;
  io_ns += row.io_ns;
  errors += row.errors;
  requeues += row.requeues;
  for (const auto& [bucket, n] : row.wait.entries()) wait[bucket] += n;
  for (const auto& [bucket, n] : row.io.entries()) io[bucket] += n;
}

ModelAgent::ModelAgent(int index, uint64_t seed) : index_(index), random_(seed) { Restart(); }

void ModelAgent::Restart() {
  dictionary_id_ = random_();
  offset_ = static_cast<uint32_t>(1 + random_() % 1000);
  defined_ = false;
}

HostRecord ModelAgent::Record() const {
  HostRecord record;
  record.host_id = HostName(index_);
  record.hostname = record.host_id;
  record.labels["index"] = absl::StrCat(index_);
  return record;
}

v1::Intent ModelAgent::intent(uint32_t n) const {
  uint32_t identity = Identity(n);
  v1::Intent intent;
  intent.set_intent_id(IdOf(identity));
  intent.set_modifier(identity % 2 == 0 ? "sync" : "");
  intent.add_frames(absl::StrCat("frame_", identity));
  intent.add_frames("common_frame");
  v1::IntentVariant* variant = intent.add_variants();
  variant->set_kernel_release(absl::StrCat("6.", index_ % 3));
  variant->add_frames()->set_symbol(absl::StrCat("frame_", identity, ".isra.0"));
  return intent;
}
v1::Actor ModelAgent::actor(uint32_t n) const {
  v1::Actor actor;
  actor.set_comm(absl::StrCat("program-", Identity(n)));
  actor.set_cgroup(absl::StrCat("/slice-", Identity(n) % 2));
  actor.set_cgroup_id(static_cast<uint64_t>(index_) * 100 + n);
  return actor;
}
v1::Device ModelAgent::device(uint32_t n) const {
  v1::Device device;
  device.set_name(absl::StrCat("sd", Identity(n)));
  device.set_persistent_id(absl::StrCat("serial-", index_, "-", Identity(n)));
  return device;
}
v1::File ModelAgent::file(uint32_t n) const {
  v1::File file;
  file.set_path(absl::StrCat("/data/", Identity(n)));
  file.set_inode(static_cast<uint64_t>(index_) * 1000 + Identity(n));
  return file;
}

v1::Definitions ModelAgent::AllDefinitions() const {
  v1::Definitions d;
  d.set_dictionary_id(dictionary_id_);
  for (uint32_t i = 1; i <= kIntents; ++i)
    (*d.mutable_intents())[i + offset_] = intent(i + offset_);
  for (uint32_t i = 1; i <= kActors; ++i) (*d.mutable_actors())[i + offset_] = actor(i + offset_);
  for (uint32_t i = 1; i <= kDevices; ++i)
    (*d.mutable_devices())[i + offset_] = device(i + offset_);
  for (uint32_t i = 1; i <= kFiles; ++i) (*d.mutable_files())[i + offset_] = file(i + offset_);
  return d;
}

std::string ModelAgent::Words(const BlockRow& r, KeyDetail detail) const {
  return JoinWords(HostName(index_), r.dirtier_intent ? IntentWords(intent(r.dirtier_intent)) : "",
                   r.issuer_intent ? IntentWords(intent(r.issuer_intent)) : "",
                   r.dirtier_actor ? ActorWords(actor(r.dirtier_actor)) : "",
                   r.issuer_actor ? ActorWords(actor(r.issuer_actor)) : "",
                   DeviceWords(device(r.device), detail), r.file ? file(r.file).path() : "",
                   r.operation, r.confidence, detail);
}

ModelAgent::Outgoing ModelAgent::Next(uint64_t end_unix_ns, uint64_t length_ns, int rows) {
  Outgoing out;
  v1::Batch& b = out.batch;
  b.set_seq(++seq);
  b.set_spool_epoch(spool_epoch());
  b.set_dictionary_id(dictionary_id_);
  b.mutable_window()->set_start_boot_ns(end_unix_ns - length_ns - kBootUnixNs);
  b.mutable_window()->set_end_boot_ns(end_unix_ns - kBootUnixNs);
  b.mutable_window()->set_realtime_offset_ns(static_cast<int64_t>(kBootUnixNs));
  if (!defined_) *b.mutable_definitions() = AllDefinitions();
  defined_ = true;
  auto pick = [this](uint32_t n, bool none) {
    uint32_t identity = none ? static_cast<uint32_t>(random_() % (n + 1))
                             : 1 + static_cast<uint32_t>(random_() % n);
    return identity == 0 ? 0 : identity + offset_;
  };
  RowBlockBuilder builder;
  for (int i = 0; i < rows; ++i) {
    BlockRow row;
    row.dirtier_intent = pick(kIntents, true);
    row.issuer_intent = pick(kIntents, true);
    row.dirtier_actor = pick(kActors, true);
    row.issuer_actor = pick(kActors, true);
    row.device = pick(kDevices, false);
    row.file = pick(kFiles, true);
    row.operation = static_cast<v1::Operation>(1 + random_() % 3);
    row.confidence = static_cast<v1::Confidence>(1 + random_() % 6);
    row.ios = 1 + random_() % 20;
    row.bytes = row.ios * 4096 + random_() % 2 * 512;
    row.wait_ns = random_() % 1'000'000'000;
    row.io_ns = random_() % 10'000'000'000;
    row.errors = random_() % 30 == 0 ? 1 : 0;
    row.requeues = random_() % 30 == 0 ? 2 : 0;
    for (uint64_t n = random_() % 6; n > 0; --n) {
      row.wait.Add(static_cast<int>(random_() % kHistogramBuckets), 1 + random_() % 5);
    }
    for (uint64_t n = random_() % 6; n > 0; --n) {
      row.io.Add(static_cast<int>(random_() % kHistogramBuckets), 1 + random_() % 5);
    }
    builder.Add(row);
    out.plain.push_back(std::move(row));
  }
  out.rows = builder.Finish();
  for (uint32_t i = 1; i <= kDevices; ++i) {
    v1::CoverageSample* sample = b.add_coverage();
    sample->set_device(i + offset_);
    sample->set_direction(v1::OPERATION_WRITE);
    sample->set_recorded_bytes(random_() % 100000);
    sample->set_kernel_bytes(sample->recorded_bytes());
  }
  if (random_() % 4 == 0) {
    v1::LossCounter* loss = b.add_losses();
    loss->set_name("table_full");
    loss->set_delta(1 + random_() % 9);
  }
  if (random_() % 3 == 0) {
    v1::TagWaits* waits = b.mutable_tag_waits();
    v1::TagSet* set = waits->add_sets();
    set->set_set(1 + static_cast<uint32_t>(random_() % 9));
    set->set_driver(absl::StrCat("driver-", random_() % 2));
    for (int i = 0; i < 3; ++i) {
      v1::TagWaitRow* row = waits->add_rows();
      row->set_device(pick(kDevices, false));
      row->set_intent(pick(kIntents, true));
      row->set_actor(pick(kActors, true));
      row->set_set(set->set());
      row->set_kind(v1::TAG_KIND_HARDWARE);
      row->set_waits(1 + random_() % 100);
      row->set_wait_ns(random_() % 1'000'000'000);
      row->mutable_wait()->add_buckets(static_cast<uint32_t>(random_() % kHistogramBuckets));
      row->mutable_wait()->add_counts(row->waits());
      v1::TagHolder* holder = waits->add_holders();
      holder->set_waiter_device(row->device());
      holder->set_set(set->set());
      holder->set_kind(v1::TAG_KIND_HARDWARE);
      holder->set_holder_device(pick(kDevices, false));
      holder->set_tags_sum(random_() % 50);
      holder->set_samples(10);
    }
  }
  return out;
}

void StoreModel::Add(const ModelAgent& agent, const ModelAgent::Outgoing& out) {
  const v1::Window& w = out.batch.window();
  uint64_t last_ns = w.end_boot_ns() + static_cast<uint64_t>(w.realtime_offset_ns()) - 1;
  for (const BlockRow& row : out.plain) {
    Entry& e = entries_.emplace_back();
    e.agent_index = agent.index();
    e.host = HostName(agent.index());
    e.last_ns = last_ns;
    e.row = row;
    e.words[0] = agent.Words(row, KeyDetail::kAll);
    e.words[1] = agent.Words(row, KeyDetail::kNoFiles);
    e.words[2] = agent.Words(row, KeyDetail::kFleet);
    if (row.dirtier_intent) e.intents[0] = agent.intent(row.dirtier_intent).intent_id();
    if (row.issuer_intent) e.intents[1] = agent.intent(row.issuer_intent).intent_id();
  }
  Book& book = books_.emplace_back();
  book.agent_index = agent.index();
  book.last_ns = last_ns;
  for (const auto& sample : out.batch.coverage()) book.recorded_bytes += sample.recorded_bytes();
  for (const auto& loss : out.batch.losses()) book.loss += loss.delta();
  for (const auto& row : out.batch.tag_waits().rows()) {
    book.tag_waits[{agent.device(row.device()).name(),
                    row.intent() == 0 ? "" : agent.intent(row.intent()).intent_id(),
                    row.actor() == 0 ? "" : agent.actor(row.actor()).comm()}]
        .Add(row);
  }
  for (const auto& holder : out.batch.tag_waits().holders()) {
    book.tags_held[{agent.device(holder.waiter_device()).name(),
                    agent.device(holder.holder_device()).name()}] += holder.tags_sum();
  }
}

RowSums StoreModel::Sum(uint64_t from, uint64_t to, KeyDetail detail,
                        const std::function<bool(const Entry&)>& wanted) const {
  RowSums sums;
  for (const Entry& e : entries_) {
    if (e.last_ns < from || e.last_ns >= to || !wanted(e)) continue;
    sums[e.words[static_cast<int>(detail)]].Add(e.row);
  }
  return sums;
}

RowSums StoreModel::Rows(uint64_t from, uint64_t to, KeyDetail detail,
                         const std::function<bool(const std::string&)>& host) const {
  return Sum(from, to, detail, [&host](const Entry& e) { return !host || host(e.host); });
}

RowSums StoreModel::RowsOfIntent(uint32_t identity, uint64_t from, uint64_t to,
                                 KeyDetail detail) const {
  std::string id = IdOf(identity);
  return Sum(from, to, detail,
             [&id](const Entry& e) { return e.intents[0] == id || e.intents[1] == id; });
}

uint64_t StoreModel::RecordedBytes(int agent_index, uint64_t from, uint64_t to) const {
  uint64_t sum = 0;
  for (const Book& b : books_) {
    if (b.agent_index == agent_index && b.last_ns >= from && b.last_ns < to)
      sum += b.recorded_bytes;
  }
  return sum;
}

uint64_t StoreModel::Loss(uint64_t from, uint64_t to) const {
  uint64_t sum = 0;
  for (const Book& b : books_) {
    if (b.last_ns >= from && b.last_ns < to) sum += b.loss;
  }
  return sum;
}

void TagWaitSum::Add(const v1::TagWaitRow& row) {
  waits += row.waits();
  wait_ns += row.wait_ns();
  for (int i = 0; i < row.wait().buckets_size(); ++i) {
    wait[row.wait().buckets(i)] += row.wait().counts(i);
  }
}

TagWaitTotals StoreModel::TagWaits(uint64_t from, uint64_t to) const {
  TagWaitTotals totals;
  for (const Book& b : books_) {
    if (b.last_ns < from || b.last_ns >= to) continue;
    for (const auto& [key, sum] : b.tag_waits) {
      TagWaitSum& into = totals.rows[key];
      into.waits += sum.waits;
      into.wait_ns += sum.wait_ns;
      for (const auto& [bucket, count] : sum.wait) into.wait[bucket] += count;
    }
    for (const auto& [key, tags] : b.tags_held) {
      if (tags > 0) totals.held[key] += tags;
    }
  }
  return totals;
}

TagWaitTotals ReadTagWaits(const ReadView& view, std::span<const HostNumber> hosts,
                           const ScanRange& range) {
  TagWaitTotals totals;
  auto device = [&view](DeviceNumber n) { return n == 0 ? "" : view.Device(n).value().name(); };
  absl::Status status = view.TagWaits(hosts, range, [&](const ScannedTagWaits& block) {
    for (const auto& row : block.waits->rows()) {
      totals
          .rows[{device(row.device()),
                 row.intent() == 0 ? "" : view.Intent(row.intent()).value().intent_id(),
                 row.actor() == 0 ? "" : view.Actor(row.actor()).value().comm()}]
          .Add(row);
    }
    for (const auto& h : block.waits->holders()) {
      if (h.tags_sum() == 0) continue;
      totals.held[{device(h.waiter_device()), device(h.holder_device())}] += h.tags_sum();
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  return totals;
}

RowSums ReadHosts(const ReadView& view, std::span<const HostNumber> hosts, const ScanRange& range,
                  KeyDetail detail) {
  Collector collector(view, detail);
  absl::Status status = view.ScanHosts(
      hosts, range, [&](const ScannedBlock& block) { return collector.Take(block); });
  EXPECT_TRUE(status.ok()) << status;
  return std::move(collector.sums);
}

RowSums ReadFleet(const ReadView& view, const ScanRange& range) {
  Collector collector(view, KeyDetail::kFleet);
  absl::Status status = view.ScanFleet(range, [&](const ScannedBlock& block) {
    EXPECT_EQ(block.host, 0u);
    for (uint32_t file : block.rows->files()) EXPECT_EQ(file, 0u);
    return collector.Take(block);
  });
  EXPECT_TRUE(status.ok()) << status;
  return std::move(collector.sums);
}

RowSums ReadIntents(const ReadView& view, std::span<const IntentNumber> intents,
                    const ScanRange& range, KeyDetail detail) {
  Collector collector(view, detail);
  absl::Status status = view.ScanIntents(
      intents, range, [&](const ScannedBlock& block) { return collector.Take(block, intents); });
  EXPECT_TRUE(status.ok()) << status;
  return std::move(collector.sums);
}

std::string Difference(const RowSums& got, const RowSums& want) {
  std::string out = absl::StrCat("got ", got.size(), " keys, want ", want.size(), "\n");
  int shown = 0;
  for (const auto& [key, sum] : want) {
    auto at = got.find(key);
    if (at != got.end() && at->second == sum) continue;
    absl::StrAppend(&out, key, ": ios got ", at == got.end() ? 0 : at->second.ios, " want ",
                    sum.ios, "\n");
    if (++shown == 5) return out;
  }
  for (const auto& [key, sum] : got) {
    if (want.contains(key)) continue;
    absl::StrAppend(&out, key, ": ios got ", sum.ios, " want none\n");
    if (++shown == 5) return out;
  }
  return out;
}

}  // namespace fleetblame::aggregator
