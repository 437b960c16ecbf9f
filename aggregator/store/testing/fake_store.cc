// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/testing/fake_store.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

// The test's own table, so that the fake does not need the real store's library.
uint64_t BucketNs(Level level) {
  switch (level) {
    case Level::kRaw:
      return 0;
    case Level::k1m:
      return 60 * kSecondNs;
    case Level::k10m:
      return 600 * kSecondNs;
    case Level::k1h:
      return 3600 * kSecondNs;
    case Level::k6h:
      return 6 * 3600 * kSecondNs;
    case Level::k1d:
      return 86400 * kSecondNs;
  }
  return 0;
}

// Gaps belong to every range that they touch.
bool Touches(uint64_t start, uint64_t end, const ScanRange& range) {
  return start < range.end_unix_ns && end > range.start_unix_ns;
}

// A window belongs to the range that holds the instant just before its end.
bool Belongs(uint64_t end, const ScanRange& range) {
  return end > range.start_unix_ns && end <= range.end_unix_ns;
}

struct WindowRows {
  HostNumber host = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  std::vector<BlockRow> rows;
};

struct HostTagWaits {
  HostNumber host = 0;
  uint64_t end = 0;
  v1::TagWaits waits;
};

struct HostCoverage {
  HostNumber host = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  v1::CoverageSample sample;
};

struct HostLoss {
  HostNumber host = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  v1::LossCounter loss;
};

using RowKey = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, int, int>;

RowKey KeyOf(const BlockRow& r) {
  return {r.dirtier_intent, r.issuer_intent, r.dirtier_actor, r.issuer_actor,
          r.device,         r.file,          r.operation,     r.confidence};
}

void AddTo(BlockRow* sum, const BlockRow& row) {
  Grow(&sum->ios, row.ios);
  Grow(&sum->bytes, row.bytes);
  Grow(&sum->wait_ns, row.wait_ns);
  Grow(&sum->io_ns, row.io_ns);
  Grow(&sum->errors, row.errors);
  Grow(&sum->requeues, row.requeues);
  sum->wait.Merge(row.wait);
  sum->io.Merge(row.io);
}

// Dense numbers from 1 for definitions that are told apart by `key`.
template <typename T>
class Dictionary {
 public:
  uint32_t Intern(const std::string& key, const T& value) {
    auto [at, inserted] = numbers_.try_emplace(key, static_cast<uint32_t>(values_.size()) + 1);
    if (inserted) values_.push_back(std::make_shared<const T>(value));
    return at->second;
  }
  size_t size() const { return values_.size(); }
  std::vector<std::shared_ptr<const T>> snapshot() const { return values_; }

 private:
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::shared_ptr<const T>> values_;
};

template <typename T>
absl::StatusOr<T> Fetch(const std::vector<std::shared_ptr<const T>>& values, uint32_t number,
                        const char* what) {
  if (number == 0 || number > values.size()) {
    return absl::NotFoundError(absl::StrCat("no ", what, " number ", number));
  }
  return *values[number - 1];
}

std::string HexOf(const v1::Intent& intent) { return absl::BytesToHexString(intent.intent_id()); }

}  // namespace

struct FakeStore::State {
  std::vector<HostRecord> hosts;
  std::vector<std::shared_ptr<const WindowRows>> windows;
  std::vector<HostCoverage> coverage;
  std::vector<HostTagWaits> tag_waits;
  std::vector<HostLoss> losses;
  std::vector<StoredGap> gaps;
  Dictionary<v1::Intent> intents;
  Dictionary<v1::Actor> actors;
  Dictionary<v1::Device> devices;
  Dictionary<v1::File> files;
  std::map<std::pair<HostNumber, uint64_t>, uint64_t> durable_seq;
  // (host, dictionary, kind, agent's number) to the store's number
  std::map<std::tuple<HostNumber, uint64_t, int, uint32_t>, uint32_t> defined;
  std::map<std::string, v1::ListDirectivesResponse::Set> directives;
  bool rollups = false;
  uint64_t raw_forgotten_before = 0;
  absl::Status write_status;
  uint64_t host_writes = 0;
  std::function<void()> on_scan;
};

// Everything by value or by pointer to what never changes.
class FakeStore::View : public ReadView {
 public:
  explicit View(const State& s)
      : hosts_(s.hosts),
        windows_(s.windows),
        coverage_(s.coverage),
        losses_(s.losses),
        tag_waits_(s.tag_waits),
        gaps_(s.gaps),
        intents_(s.intents.snapshot()),
        actors_(s.actors.snapshot()),
        devices_(s.devices.snapshot()),
        files_(s.files.snapshot()),
        rollups_(s.rollups),
        raw_forgotten_before_(s.raw_forgotten_before),
        on_scan_(s.on_scan) {
    std::stable_sort(windows_.begin(), windows_.end(), [](const auto& a, const auto& b) {
      return std::tie(a->host, a->end) < std::tie(b->host, b->end);
    });
  }

  std::vector<HostRecord> Hosts() const override { return hosts_; }

  absl::Status ScanHosts(std::span<const HostNumber> hosts, const ScanRange& range,
                         const BlockSink& sink) const override {
    HostNumber last = 0;
    Scan(
        [hosts](const WindowRows& w) {
          return std::binary_search(hosts.begin(), hosts.end(), w.host);
        },
        range, false,
        [&](const ScannedBlock& block) {
          if (range.one_block_a_host && block.host == last) return true;
          last = block.host;
          return sink(block);
        });
    return absl::OkStatus();
  }

  absl::Status ScanIntents(std::span<const IntentNumber> intents, const ScanRange& range,
                           const BlockSink& sink) const override {
    auto wanted = [intents](uint32_t n) {
      return std::binary_search(intents.begin(), intents.end(), n);
    };
    Scan(
        [wanted, range](const WindowRows& w) {
          return InPart(w, range) &&
                 std::any_of(w.rows.begin(), w.rows.end(), [&](const BlockRow& r) {
                   return wanted(r.dirtier_intent) || wanted(r.issuer_intent);
                 });
        },
        range, false, sink);
    return absl::OkStatus();
  }

  absl::Status ScanFleet(const ScanRange& range, const BlockSink& sink) const override {
    Scan([range](const WindowRows& w) { return InPart(w, range); }, range, true, sink);
    return absl::OkStatus();
  }

  absl::StatusOr<v1::Intent> Intent(IntentNumber n) const override {
    return Fetch(intents_, n, "intent");
  }
  absl::StatusOr<v1::Actor> Actor(ActorNumber n) const override {
    return Fetch(actors_, n, "actor");
  }
  absl::StatusOr<v1::Device> Device(DeviceNumber n) const override {
    return Fetch(devices_, n, "device");
  }
  absl::StatusOr<v1::File> File(FileNumber n) const override { return Fetch(files_, n, "file"); }

  absl::StatusOr<std::vector<IntentNumber>> FindIntents(std::string_view hex_prefix,
                                                        size_t limit) const override {
    std::vector<IntentNumber> found;
    for (size_t i = 0; i < intents_.size() && found.size() < limit; ++i) {
      if (HexOf(*intents_[i]).substr(0, hex_prefix.size()) == hex_prefix) {
        found.push_back(static_cast<IntentNumber>(i + 1));
      }
    }
    return found;
  }

  absl::Status ForEachIntent(
      const std::function<bool(IntentNumber, const v1::Intent&)>& sink) const override {
    for (size_t i = 0; i < intents_.size(); ++i) {
      if (!sink(static_cast<IntentNumber>(i + 1), *intents_[i])) break;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SeenSpan> IntentSeen(IntentNumber number) const override {
    if (number == 0 || number > intents_.size()) {
      return absl::NotFoundError(absl::StrCat("no intent number ", number));
    }
    SeenSpan span;
    for (const auto& w : windows_) {
      for (const BlockRow& r : w->rows) {
        if (r.dirtier_intent != number && r.issuer_intent != number) continue;
        if (span.first_unix_ns == 0 || w->start < span.first_unix_ns) span.first_unix_ns = w->start;
        span.last_unix_ns = std::max(span.last_unix_ns, w->end);
      }
    }
    return span;
  }

  absl::StatusOr<std::vector<StoredGap>> Gaps(std::span<const HostNumber> hosts,
                                              const ScanRange& range) const override {
    std::vector<StoredGap> out;
    for (const StoredGap& g : gaps_) {
      if (!std::binary_search(hosts.begin(), hosts.end(), g.host)) continue;
      if (Touches(g.gap.start_unix_ns(), g.gap.end_unix_ns(), range)) out.push_back(g);
    }
    return out;
  }

  absl::StatusOr<std::vector<StoredCoverage>> Coverage(std::span<const HostNumber> hosts,
                                                       const ScanRange& range) const override {
    std::map<std::tuple<HostNumber, DeviceNumber, int>, StoredCoverage> sums;
    for (const HostCoverage& c : coverage_) {
      if (!std::binary_search(hosts.begin(), hosts.end(), c.host)) continue;
      if (!Belongs(c.end, range)) continue;
      StoredCoverage& sum = sums[{c.host, c.sample.device(), c.sample.direction()}];
      sum.host = c.host;
      sum.device = c.sample.device();
      v1::CoverageSample& s = sum.sample;
      s.set_device(c.sample.device());
      s.set_direction(c.sample.direction());
      s.set_recorded_bytes(s.recorded_bytes() + c.sample.recorded_bytes());
      s.set_lost_bytes(s.lost_bytes() + c.sample.lost_bytes());
      s.set_kernel_bytes(s.kernel_bytes() + c.sample.kernel_bytes());
      s.set_recorded_ios(s.recorded_ios() + c.sample.recorded_ios());
      s.set_kernel_ios(s.kernel_ios() + c.sample.kernel_ios());
    }
    std::vector<StoredCoverage> out;
    for (auto& [key, sum] : sums) out.push_back(std::move(sum));
    return out;
  }

  absl::StatusOr<std::map<std::string, uint64_t>> Losses(std::span<const HostNumber> hosts,
                                                         const ScanRange& range) const override {
    std::map<std::string, uint64_t> out;
    for (const HostLoss& l : losses_) {
      if (!std::binary_search(hosts.begin(), hosts.end(), l.host)) continue;
      if (Belongs(l.end, range)) Grow(&out[l.loss.name()], l.loss.delta());
    }
    return out;
  }

  absl::Status TagWaits(std::span<const HostNumber> hosts, const ScanRange& range,
                        const TagWaitsSink& sink) const override {
    for (const HostTagWaits& t : tag_waits_) {
      if (!std::binary_search(hosts.begin(), hosts.end(), t.host)) continue;
      if (Belongs(t.end, range) && !sink({t.host, t.end, &t.waits})) break;
    }
    return absl::OkStatus();
  }

 private:
  struct Part {
    std::map<RowKey, BlockRow> rows;
    uint64_t start = 0;
    uint64_t end = 0;
  };
  // What one block is made of: host, where it begins, its level, and for raw windows where it ends.
  using PartKey = std::tuple<HostNumber, uint64_t, int, uint64_t>;

  static bool InPart(const WindowRows& w, const ScanRange& range) {
    return w.host % range.parts == range.part;
  }

  void Scan(const std::function<bool(const WindowRows&)>& wanted, const ScanRange& range,
            bool fleet, const BlockSink& sink) const {
    std::map<PartKey, Part> parts;
    for (const auto& w : windows_) {
      if (!wanted(*w) || !Belongs(w->end, range)) continue;
      HostNumber host = fleet ? 0 : w->host;
      Level level = LevelFor(w->end - 1, range);
      if (level == Level::kRaw && w->end <= raw_forgotten_before_) continue;
      uint64_t length = BucketNs(level);
      uint64_t start = length == 0 ? w->start : (w->end - 1) / length * length;
      uint64_t end = length == 0 ? w->end : start + length;
      Part& part = parts[{host, start, static_cast<int>(level), end}];
      part.start = start;
      part.end = end;
      for (BlockRow row : w->rows) {
        if (fleet) row.file = 0;
        if (!range.histograms) {
          row.wait.clear();
          row.io.clear();
        }
        auto [at, inserted] = part.rows.try_emplace(KeyOf(row), row);
        if (!inserted) AddTo(&at->second, row);
      }
    }
    for (const auto& [key, part] : parts) {
      if (on_scan_) on_scan_();
      RowBlockBuilder builder;
      for (const auto& [row_key, row] : part.rows) builder.Add(row);
      v1::RowBlock rows = builder.Finish();
      ScannedBlock block;
      block.host = std::get<0>(key);
      block.level = static_cast<Level>(std::get<2>(key));
      block.start_unix_ns = part.start;
      block.end_unix_ns = part.end;
      block.rows = &rows;
      if (!sink(block)) return;
    }
  }

  // The coarsest bucket around the instant that lies wholly in the range.
  Level LevelFor(uint64_t instant, const ScanRange& range) const {
    if (!rollups_) return Level::kRaw;
    for (int l = static_cast<int>(range.coarsest); l > 0; --l) {
      uint64_t length = BucketNs(static_cast<Level>(l));
      uint64_t start = instant / length * length;
      if (start >= range.start_unix_ns && start + length <= range.end_unix_ns) {
        return static_cast<Level>(l);
      }
    }
    return Level::kRaw;
  }

  const std::vector<HostRecord> hosts_;
  std::vector<std::shared_ptr<const WindowRows>> windows_;
  const std::vector<HostCoverage> coverage_;
  const std::vector<HostLoss> losses_;
  const std::vector<HostTagWaits> tag_waits_;
  const std::vector<StoredGap> gaps_;
  const std::vector<std::shared_ptr<const v1::Intent>> intents_;
  const std::vector<std::shared_ptr<const v1::Actor>> actors_;
  const std::vector<std::shared_ptr<const v1::Device>> devices_;
  const std::vector<std::shared_ptr<const v1::File>> files_;
  const bool rollups_;
  const uint64_t raw_forgotten_before_;
  const std::function<void()> on_scan_;
};

FakeStore::FakeStore() : state_(std::make_unique<State>()) {}
FakeStore::~FakeStore() = default;

void FakeStore::AddRows(HostNumber host, uint64_t start_unix_ns, uint64_t end_unix_ns,
                        std::vector<BlockRow> rows) {
  absl::MutexLock lock(&mutex_);
  auto w = std::make_shared<WindowRows>();
  w->host = host;
  w->start = start_unix_ns;
  w->end = end_unix_ns;
  w->rows = std::move(rows);
  state_->windows.push_back(std::move(w));
}

void FakeStore::AddTagWaits(HostNumber host, uint64_t end_unix_ns, const v1::TagWaits& waits) {
  absl::MutexLock lock(&mutex_);
  state_->tag_waits.push_back({host, end_unix_ns, waits});
}

void FakeStore::AddCoverage(HostNumber host, uint64_t start_unix_ns, uint64_t end_unix_ns,
                            const v1::CoverageSample& sample) {
  absl::MutexLock lock(&mutex_);
  state_->coverage.push_back({host, start_unix_ns, end_unix_ns, sample});
}

void FakeStore::AddLoss(HostNumber host, uint64_t start_unix_ns, uint64_t end_unix_ns,
                        const std::string& name, uint64_t delta) {
  absl::MutexLock lock(&mutex_);
  v1::LossCounter loss;
  loss.set_name(name);
  loss.set_delta(delta);
  state_->losses.push_back({host, start_unix_ns, end_unix_ns, loss});
}

IntentNumber FakeStore::InternIntent(const v1::Intent& intent) {
  absl::MutexLock lock(&mutex_);
  return state_->intents.Intern(intent.intent_id(), intent);
}
ActorNumber FakeStore::InternActor(const v1::Actor& actor) {
  absl::MutexLock lock(&mutex_);
  return state_->actors.Intern(actor.SerializeAsString(), actor);
}
DeviceNumber FakeStore::InternDevice(const v1::Device& device) {
  absl::MutexLock lock(&mutex_);
  return state_->devices.Intern(device.SerializeAsString(), device);
}
FileNumber FakeStore::InternFile(const v1::File& file) {
  absl::MutexLock lock(&mutex_);
  return state_->files.Intern(file.SerializeAsString(), file);
}

void FakeStore::EnableRollups(bool enabled) {
  absl::MutexLock lock(&mutex_);
  state_->rollups = enabled;
}
void FakeStore::ForgetRawBefore(uint64_t unix_ns) {
  absl::MutexLock lock(&mutex_);
  state_->raw_forgotten_before = unix_ns;
}
void FakeStore::FailWrites(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  state_->write_status = std::move(status);
}
void FakeStore::OnScan(std::function<void()> hook) {
  absl::MutexLock lock(&mutex_);
  state_->on_scan = std::move(hook);
}

uint64_t FakeStore::dictionary_epoch() const { return 77; }

absl::StatusOr<std::vector<HostNumber>> FakeStore::UpsertHosts(std::span<const HostRecord> hosts) {
  absl::MutexLock lock(&mutex_);
  std::vector<HostNumber> numbers;
  if (hosts.empty()) return numbers;
  if (!state_->write_status.ok()) return state_->write_status;
  ++state_->host_writes;
  for (const HostRecord& host : hosts) numbers.push_back(UpsertOne(host));
  return numbers;
}

uint64_t FakeStore::host_writes() const {
  absl::MutexLock lock(&mutex_);
  return state_->host_writes;
}

HostNumber FakeStore::UpsertOne(const HostRecord& host) {
  for (HostRecord& known : state_->hosts) {
    if (known.host_id != host.host_id) continue;
    HostRecord updated = host;
    updated.number = known.number;
    updated.first_seen_unix_ns = known.first_seen_unix_ns;
    known = std::move(updated);
    return known.number;
  }
  HostRecord created = host;
  created.number = static_cast<HostNumber>(state_->hosts.size()) + 1;
  state_->hosts.push_back(created);
  return created.number;
}

absl::StatusOr<uint64_t> FakeStore::DurableSeq(HostNumber host, uint64_t spool_epoch) const {
  absl::MutexLock lock(&mutex_);
  auto at = state_->durable_seq.find({host, spool_epoch});
  return at == state_->durable_seq.end() ? 0 : at->second;
}

absl::StatusOr<std::vector<AppendResult>> FakeStore::Append(
    std::span<const IncomingBatch> batches) {
  absl::MutexLock lock(&mutex_);
  if (!state_->write_status.ok()) return state_->write_status;
  std::vector<AppendResult> results;
  for (const IncomingBatch& in : batches) results.push_back(AppendOne(in));
  return results;
}

AppendResult FakeStore::AppendOne(const IncomingBatch& in) {
  using Outcome = AppendResult::Outcome;
  State& s = *state_;
  const v1::Batch& batch = *in.batch;
  AppendResult result;
  uint64_t& durable = s.durable_seq[{in.host, batch.spool_epoch()}];
  result.durable_seq = durable;
  if (batch.seq() <= durable) {
    result.outcome = Outcome::kDuplicate;
    return result;
  }
  if (batch.seq() != durable + 1) {
    result.outcome = Outcome::kOutOfOrder;
    return result;
  }
  const v1::Window& w = batch.window();
  if (w.end_boot_ns() <= w.start_boot_ns()) {
    result.outcome = Outcome::kInvalid;
    result.error = absl::InvalidArgumentError("window is empty");
    return result;
  }
  Define(in.host, batch.definitions());

  result.need.set_dictionary_id(batch.dictionary_id());
  auto translate = [&](int kind, uint32_t number,
                       google::protobuf::RepeatedField<uint32_t>* need) -> uint32_t {
    if (number == 0) return 0;
    auto at = s.defined.find({in.host, batch.dictionary_id(), kind, number});
    if (at != s.defined.end()) return at->second;
    if (std::find(need->begin(), need->end(), number) == need->end()) need->Add(number);
    return 0;
  };
  std::vector<BlockRow> rows;
  if (in.rows != nullptr) {
    RowBlockReader reader(*in.rows);
    BlockRow row;
    v1::Need& need = result.need;
    while (reader.Next(&row)) {
      row.dirtier_intent = translate(0, row.dirtier_intent, need.mutable_intents());
      row.issuer_intent = translate(0, row.issuer_intent, need.mutable_intents());
      row.dirtier_actor = translate(1, row.dirtier_actor, need.mutable_actors());
      row.issuer_actor = translate(1, row.issuer_actor, need.mutable_actors());
      row.device = translate(2, row.device, need.mutable_devices());
      row.file = translate(3, row.file, need.mutable_files());
      rows.push_back(row);
    }
  }
  std::vector<v1::CoverageSample> coverage;
  for (v1::CoverageSample sample : batch.coverage()) {
    sample.set_device(translate(2, sample.device(), result.need.mutable_devices()));
    coverage.push_back(sample);
  }
  v1::TagWaits tag_waits = batch.tag_waits();
  for (v1::TagDisk& disk : *tag_waits.mutable_disks()) {
    disk.set_device(translate(2, disk.device(), result.need.mutable_devices()));
  }
  for (v1::TagWaitRow& row : *tag_waits.mutable_rows()) {
    row.set_device(translate(2, row.device(), result.need.mutable_devices()));
    row.set_intent(translate(0, row.intent(), result.need.mutable_intents()));
    row.set_actor(translate(1, row.actor(), result.need.mutable_actors()));
  }
  for (v1::TagHolder& holder : *tag_waits.mutable_holders()) {
    holder.set_waiter_device(translate(2, holder.waiter_device(), result.need.mutable_devices()));
    holder.set_holder_device(translate(2, holder.holder_device(), result.need.mutable_devices()));
  }
  if (result.need.intents_size() + result.need.actors_size() + result.need.devices_size() +
          result.need.files_size() >
      0) {
    result.outcome = Outcome::kNeedDefinitions;
    return result;
  }
  auto stored = std::make_shared<WindowRows>();
  stored->host = in.host;
  stored->start = w.start_boot_ns() + static_cast<uint64_t>(w.realtime_offset_ns());
  stored->end = w.end_boot_ns() + static_cast<uint64_t>(w.realtime_offset_ns());
  stored->rows = std::move(rows);
  for (const v1::CoverageSample& sample : coverage) {
    s.coverage.push_back({in.host, stored->start, stored->end, sample});
  }
  for (const v1::LossCounter& loss : batch.losses()) {
    s.losses.push_back({in.host, stored->start, stored->end, loss});
  }
  if (batch.has_tag_waits()) s.tag_waits.push_back({in.host, stored->end, tag_waits});
  for (const v1::Gap& gap : batch.gaps()) s.gaps.push_back({in.host, gap});
  s.windows.push_back(std::move(stored));
  durable = batch.seq();
  result.durable_seq = durable;
  return result;
}

void FakeStore::Define(HostNumber host, const v1::Definitions& d) {
  State& s = *state_;
  for (const auto& [number, intent] : d.intents()) {
    s.defined[{host, d.dictionary_id(), 0, number}] = s.intents.Intern(intent.intent_id(), intent);
  }
  for (const auto& [number, actor] : d.actors()) {
    s.defined[{host, d.dictionary_id(), 1, number}] =
        s.actors.Intern(actor.SerializeAsString(), actor);
  }
  for (const auto& [number, device] : d.devices()) {
    s.defined[{host, d.dictionary_id(), 2, number}] =
        s.devices.Intern(device.SerializeAsString(), device);
  }
  for (const auto& [number, file] : d.files()) {
    s.defined[{host, d.dictionary_id(), 3, number}] =
        s.files.Intern(file.SerializeAsString(), file);
  }
}

absl::Status FakeStore::AddDefinitions(HostNumber host, const v1::Definitions& definitions) {
  absl::MutexLock lock(&mutex_);
  if (!state_->write_status.ok()) return state_->write_status;
  Define(host, definitions);
  return absl::OkStatus();
}

absl::Status FakeStore::AddGap(HostNumber host, const v1::Gap& gap) {
  absl::MutexLock lock(&mutex_);
  if (!state_->write_status.ok()) return state_->write_status;
  state_->gaps.push_back({host, gap});
  return absl::OkStatus();
}

absl::Status FakeStore::SkipTo(HostNumber host, uint64_t spool_epoch, uint64_t seq,
                               const v1::Gap& gap) {
  absl::MutexLock lock(&mutex_);
  if (!state_->write_status.ok()) return state_->write_status;
  uint64_t& durable = state_->durable_seq[{host, spool_epoch}];
  durable = std::max(durable, seq);
  state_->gaps.push_back({host, gap});
  return absl::OkStatus();
}

absl::Status FakeStore::PutDirectives(const v1::ListDirectivesResponse::Set& set) {
  absl::MutexLock lock(&mutex_);
  if (!state_->write_status.ok()) return state_->write_status;
  state_->directives[set.name()] = set;
  return absl::OkStatus();
}

absl::Status FakeStore::DeleteDirectives(std::string_view name) {
  absl::MutexLock lock(&mutex_);
  if (!state_->write_status.ok()) return state_->write_status;
  if (state_->directives.erase(std::string(name)) == 0) {
    return absl::NotFoundError(absl::StrCat("no directives named ", ToAbsl(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::ListDirectivesResponse::Set>> FakeStore::ListDirectives() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::ListDirectivesResponse::Set> out;
  for (const auto& [name, set] : state_->directives) out.push_back(set);
  return out;
}

std::unique_ptr<ReadView> FakeStore::NewReadView() const {
  absl::MutexLock lock(&mutex_);
  return std::make_unique<View>(*state_);
}

absl::Status FakeStore::Upkeep(uint64_t, uint64_t) { return absl::OkStatus(); }

std::map<std::string, double> FakeStore::Gauges() const {
  absl::MutexLock lock(&mutex_);
  return {{"hosts", static_cast<double>(state_->hosts.size())},
          {"intents", static_cast<double>(state_->intents.size())}};
}

}  // namespace fleetblame::aggregator
