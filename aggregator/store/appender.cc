// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/appender.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/row_codec.h"

namespace fleetblame::aggregator {
namespace {

using Outcome = AppendResult::Outcome;

// A window that covers more is nonsense, as is one before this century.
constexpr uint64_t kMaxWindowNs = 366ull * 86400 * 1'000'000'000;
constexpr uint64_t kOldestUnixNs = 946'684'800ull * 1'000'000'000;
constexpr uint64_t kNewestUnixNs = 1ull << 62;

bool IsEmpty(const v1::Need& need) {
  return need.intents_size() + need.actors_size() + need.devices_size() + need.files_size() == 0;
}

template <typename Map>
bool Defines(const Map& map, uint32_t number) {
  return map.find(number) != map.end();
}

}  // namespace

absl::StatusOr<Appender::Times> Appender::TimesOf(const v1::Window& window) const {
  Times times;
  times.start_unix_ns = window.start_boot_ns() + static_cast<uint64_t>(window.realtime_offset_ns());
  times.end_unix_ns = window.end_boot_ns() + static_cast<uint64_t>(window.realtime_offset_ns());
  if (window.end_boot_ns() <= window.start_boot_ns() ||
      times.end_unix_ns - times.start_unix_ns > kMaxWindowNs ||
      times.start_unix_ns < kOldestUnixNs || times.end_unix_ns > kNewestUnixNs) {
    return absl::InvalidArgumentError(absl::StrCat("window [", times.start_unix_ns, ", ",
                                                   times.end_unix_ns,
                                                   ") is empty, endless or not of this century"));
  }
  return times;
}

absl::StatusOr<AppendResult> Appender::Add(const IncomingBatch& in) {
  const v1::Batch& batch = *in.batch;
  AppendResult result;
  auto refuse = [&](Outcome outcome, absl::Status error) {
    blocked_hosts_.insert(in.host);
    result.outcome = outcome;
    result.error = std::move(error);
    return result;
  };
  if (!s_.hosts->Has(in.host)) {
    return refuse(Outcome::kInvalid,
                  absl::InvalidArgumentError(absl::StrCat("no host number ", in.host)));
  }
  absl::StatusOr<uint64_t> durable = s_.high_water->Current(in.host, batch.spool_epoch());
  if (!durable.ok()) return durable.status();
  result.durable_seq = *durable;
  if (batch.seq() <= *durable) {
    result.outcome = Outcome::kDuplicate;
    return result;
  }
  if (batch.seq() != *durable + 1 || blocked_hosts_.contains(in.host)) {
    return refuse(Outcome::kOutOfOrder, absl::OkStatus());
  }
  absl::StatusOr<Times> times = TimesOf(batch.window());
  if (!times.ok()) return refuse(Outcome::kInvalid, times.status());

  Dictionaries::Scope scope{in.host, batch.dictionary_id()};
  if (absl::Status status = CollectNeed(scope, in, &result.need); !status.ok()) return status;
  if (!IsEmpty(result.need)) {
    result.need.set_dictionary_id(batch.dictionary_id());
    return refuse(Outcome::kNeedDefinitions, absl::OkStatus());
  }
  absl::Status good = s_.interner->CheckIntents(batch.definitions().intents());
  if (!good.ok()) {
    if (!absl::IsInvalidArgument(good)) return good;
    return refuse(Outcome::kInvalid, std::move(good));
  }
  if (absl::Status status = Intern(scope, batch.definitions()); !status.ok()) return status;
  s_.dictionaries->Use(scope, now_unix_ns_, &batch_);
  if (absl::Status status = Place(in, scope, *times); !status.ok()) return status;
  for (const v1::Gap& gap : batch.gaps()) AddGap(in.host, gap);
  s_.hosts->NoteBatch(in.host, times->end_unix_ns, &batch_);
  s_.high_water->Raise(in.host, batch.spool_epoch(), batch.seq());
  result.durable_seq = batch.seq();
  return result;
}

absl::Status Appender::CollectNeed(const Dictionaries::Scope& scope, const IncomingBatch& in,
                                   v1::Need* need) {
  const v1::Definitions& own = in.batch->definitions();
  auto check = [&](DefinitionKind kind, const auto& numbers, const auto& defined,
                   google::protobuf::RepeatedField<uint32_t>* missing) -> absl::Status {
    for (uint32_t number : numbers) {
      if (number == 0 || Defines(defined, number)) continue;
      absl::StatusOr<uint32_t> known = s_.dictionaries->Find(scope, kind, number);
      if (!known.ok()) return known.status();
      if (*known == 0) missing->Add(number);
    }
    return absl::OkStatus();
  };
  v1::RowBlock none;
  const v1::RowBlock& rows = in.rows != nullptr ? *in.rows : none;
  google::protobuf::RepeatedField<uint32_t> covered;
  for (const v1::CoverageSample& sample : in.batch->coverage()) covered.Add(sample.device());
  google::protobuf::RepeatedField<uint32_t> tag_intents;
  google::protobuf::RepeatedField<uint32_t> tag_actors;
  for (const v1::TagDisk& disk : in.batch->tag_waits().disks()) covered.Add(disk.device());
  for (const v1::TagWaitRow& row : in.batch->tag_waits().rows()) {
    covered.Add(row.device());
    tag_intents.Add(row.intent());
    tag_actors.Add(row.actor());
  }
  for (const v1::TagHolder& holder : in.batch->tag_waits().holders()) {
    covered.Add(holder.waiter_device());
    covered.Add(holder.holder_device());
  }
  for (absl::Status status :
       {check(DefinitionKind::kIntent, rows.intents(), own.intents(), need->mutable_intents()),
        check(DefinitionKind::kActor, rows.actors(), own.actors(), need->mutable_actors()),
        check(DefinitionKind::kDevice, rows.devices(), own.devices(), need->mutable_devices()),
        check(DefinitionKind::kFile, rows.files(), own.files(), need->mutable_files()),
        check(DefinitionKind::kDevice, covered, own.devices(), need->mutable_devices()),
        check(DefinitionKind::kIntent, tag_intents, own.intents(), need->mutable_intents()),
        check(DefinitionKind::kActor, tag_actors, own.actors(), need->mutable_actors())}) {
    if (!status.ok()) return status;
  }
  for (auto* numbers : {need->mutable_intents(), need->mutable_actors(), need->mutable_devices()}) {
    std::sort(numbers->begin(), numbers->end());
    numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
  }
  return absl::OkStatus();
}

absl::Status Appender::Intern(const Dictionaries::Scope& scope,
                              const v1::Definitions& definitions) {
  // A number that means something already keeps its meaning: agents repeat definitions until they
  // are acknowledged.
  auto intern = [&](DefinitionKind kind, const auto& map, auto&& add) -> absl::Status {
    for (const auto& [agent_number, content] : map) {
      if (agent_number == 0) continue;
      absl::StatusOr<uint32_t> known = s_.dictionaries->Find(scope, kind, agent_number);
      if (!known.ok()) return known.status();
      if (*known != 0) continue;
      absl::StatusOr<uint32_t> number = add(content);
      if (!number.ok()) return number.status();
      s_.dictionaries->Define(scope, kind, agent_number, *number, &batch_);
    }
    return absl::OkStatus();
  };
  Interner& interner = *s_.interner;
  for (absl::Status status :
       {intern(DefinitionKind::kIntent, definitions.intents(),
               [&](const auto& content) { return interner.InternIntent(content, &batch_); }),
        intern(DefinitionKind::kActor, definitions.actors(),
               [&](const auto& content) { return interner.InternActor(content, &batch_); }),
        intern(DefinitionKind::kDevice, definitions.devices(),
               [&](const auto& content) { return interner.InternDevice(content, &batch_); }),
        intern(DefinitionKind::kFile, definitions.files(),
               [&](const auto& content) { return interner.InternFile(content, &batch_); })}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Appender::AddDefinitions(HostNumber host, const v1::Definitions& definitions) {
  if (!s_.hosts->Has(host)) {
    return absl::InvalidArgumentError(absl::StrCat("no host number ", host));
  }
  absl::Status good = s_.interner->CheckIntents(definitions.intents());
  if (!good.ok()) return good;
  Dictionaries::Scope scope{host, definitions.dictionary_id()};
  s_.dictionaries->Use(scope, now_unix_ns_, &batch_);
  return Intern(scope, definitions);
}

void Appender::AddGap(HostNumber host, const v1::Gap& gap) {
  if (gap.end_unix_ns() <= gap.start_unix_ns()) return;
  batch_.Put(s_.database->family(Family::kGaps), GapKey(host, gap), gap.SerializeAsString());
}

absl::Status Appender::Translate(const Dictionaries::Scope& scope, DefinitionKind kind,
                                 google::protobuf::RepeatedField<uint32_t>* numbers) {
  for (uint32_t& number : *numbers) {
    absl::StatusOr<uint32_t> known = s_.dictionaries->Find(scope, kind, number);
    if (!known.ok()) return known.status();
    number = *known;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::TagWaits> Appender::TranslateTagWaits(const Dictionaries::Scope& scope,
                                                         const v1::TagWaits& in) {
  v1::TagWaits out = in;
  absl::Status error;
  auto number = [&](DefinitionKind kind, uint32_t agent_number) -> uint32_t {
    if (agent_number == 0) return 0;
    absl::StatusOr<uint32_t> known = s_.dictionaries->Find(scope, kind, agent_number);
    if (!known.ok()) error = known.status();
    return known.ok() ? *known : 0;
  };
  for (v1::TagDisk& disk : *out.mutable_disks()) {
    disk.set_device(number(DefinitionKind::kDevice, disk.device()));
  }
  for (v1::TagWaitRow& row : *out.mutable_rows()) {
    row.set_device(number(DefinitionKind::kDevice, row.device()));
    row.set_intent(number(DefinitionKind::kIntent, row.intent()));
    row.set_actor(number(DefinitionKind::kActor, row.actor()));
  }
  for (v1::TagHolder& holder : *out.mutable_holders()) {
    holder.set_waiter_device(number(DefinitionKind::kDevice, holder.waiter_device()));
    holder.set_holder_device(number(DefinitionKind::kDevice, holder.holder_device()));
  }
  if (!error.ok()) return error;
  return out;
}

absl::Status Appender::Place(const IncomingBatch& in, const Dictionaries::Scope& scope,
                             const Times& times) {
  translated_.Clear();
  if (in.rows != nullptr) translated_.CopyFrom(*in.rows);
  for (absl::Status status :
       {Translate(scope, DefinitionKind::kIntent, translated_.mutable_intents()),
        Translate(scope, DefinitionKind::kActor, translated_.mutable_actors()),
        Translate(scope, DefinitionKind::kDevice, translated_.mutable_devices()),
        Translate(scope, DefinitionKind::kFile, translated_.mutable_files())}) {
    if (!status.ok()) return status;
  }
  stored::Coverage coverage;
  for (const v1::CoverageSample& sample : in.batch->coverage()) {
    absl::StatusOr<uint32_t> device =
        s_.dictionaries->Find(scope, DefinitionKind::kDevice, sample.device());
    if (!device.ok()) return device.status();
    v1::CoverageSample* out = coverage.add_samples();
    *out = sample;
    out->set_device(*device);
  }
  v1::TagWaits tag_waits;
  if (in.batch->has_tag_waits()) {
    absl::StatusOr<v1::TagWaits> translated = TranslateTagWaits(scope, in.batch->tag_waits());
    if (!translated.ok()) return translated.status();
    tag_waits = *std::move(translated);
  }
  const auto tag_wait_rows = static_cast<uint64_t>(tag_waits.rows_size());
  const uint64_t last_ns = times.end_unix_ns - 1;
  const auto row_count = static_cast<uint64_t>(translated_.op_confidence_size());
  auto kept = std::find_if(horizons_.begin(), horizons_.end(),
                           [last_ns](uint64_t horizon) { return last_ns >= horizon; });
  if (kept == horizons_.end()) {
    too_old_rows_ += row_count + tag_wait_rows;
    return absl::OkStatus();
  }
  const auto level = static_cast<Level>(kept - horizons_.begin());
  for (uint32_t intent : translated_.intents()) {
    if (intent == 0) continue;
    s_.intent_seen->Note(intent, times.start_unix_ns, times.end_unix_ns, &batch_);
  }
  for (const v1::TagWaitRow& row : tag_waits.rows()) {
    if (row.intent() == 0) continue;
    s_.intent_seen->Note(row.intent(), times.start_unix_ns, times.end_unix_ns, &batch_);
  }
  rows_ += row_count;
  tag_wait_rows_ += tag_wait_rows;
  first_unix_ns_ = std::min(
      first_unix_ns_, level == Level::kRaw ? last_ns : last_ns / LevelNs(level) * LevelNs(level));
  last_unix_ns_ = std::max(last_unix_ns_, times.end_unix_ns);
  MarkStale(in.host, last_ns, level);
  if (level != Level::kRaw) return PlaceLate(level, in, last_ns, coverage, tag_waits);

  rocksdb::ColumnFamilyHandle* family = s_.database->family(Family::kPointsRaw);
  const std::string suffix = EncodeRawSuffix(in.batch->spool_epoch(), in.batch->seq());
  auto put = [&](PointKind kind, const std::string& value) {
    batch_.Put(family, EncodePointKey(Level::kRaw, kind, in.host, last_ns) + suffix, value);
  };
  if (row_count > 0) {
    put(PointKind::kHostRows, EncodeRows(translated_, times.end_unix_ns - times.start_unix_ns));
  }
  if (coverage.samples_size() > 0) put(PointKind::kCoverage, coverage.SerializeAsString());
  if (in.batch->losses_size() > 0) {
    stored::Losses losses;
    *losses.mutable_losses() = in.batch->losses();
    put(PointKind::kLosses, losses.SerializeAsString());
  }
  if (in.batch->has_tag_waits()) put(PointKind::kTagWaits, tag_waits.SerializeAsString());
  return absl::OkStatus();
}

absl::Status Appender::PlaceLate(Level level, const IncomingBatch& in, uint64_t last_ns,
                                 const stored::Coverage& coverage, const v1::TagWaits& tag_waits) {
  const uint64_t bucket_last_ns = last_ns / LevelNs(level) * LevelNs(level) + LevelNs(level) - 1;
  last_unix_ns_ = std::max(last_unix_ns_, bucket_last_ns + 1);
  LateKey key(level, in.host, bucket_last_ns);
  auto [at, inserted] = late_.try_emplace(key);
  if (inserted) {
    if (absl::Status status = LoadLate(key, &at->second); !status.ok()) return status;
  }
  at->second.rows.Add(translated_);
  AddCoverage(coverage, &at->second.coverage);
  stored::Losses losses;
  *losses.mutable_losses() = in.batch->losses();
  AddLosses(losses, &at->second.losses);
  if (in.batch->has_tag_waits()) at->second.tag_waits.Add(tag_waits);
  return absl::OkStatus();
}

// What the bucket holds so far. It is no longer made from anything finer, so it is the truth.
absl::Status Appender::LoadLate(const LateKey& late_key, Late* late) {
  const auto& [level, host, last_ns] = late_key;
  Family family = PointsFamily(level);
  std::string value;
  bool found = false;
  absl::Status status = s_.database->Get(
      family, EncodePointKey(level, PointKind::kHostRows, host, last_ns), &value, &found);
  if (!status.ok()) return status;
  if (found) {
    v1::RowBlock rows;
    uint64_t span_ns = 0;
    status = DecodeRows(value, &rows, &span_ns);
    if (!status.ok()) return status;
    late->rows.Add(rows);
  }
  status = s_.database->Get(family, EncodePointKey(level, PointKind::kCoverage, host, last_ns),
                            &value, &found);
  if (!status.ok()) return status;
  stored::Coverage coverage;
  if (found && !coverage.ParseFromString(value)) return absl::DataLossError("damaged coverage");
  AddCoverage(coverage, &late->coverage);
  status = s_.database->Get(family, EncodePointKey(level, PointKind::kLosses, host, last_ns),
                            &value, &found);
  if (!status.ok()) return status;
  stored::Losses losses;
  if (found && !losses.ParseFromString(value)) return absl::DataLossError("damaged losses");
  if (found) AddLosses(losses, &late->losses);
  status = s_.database->Get(family, EncodePointKey(level, PointKind::kTagWaits, host, last_ns),
                            &value, &found);
  if (!status.ok()) return status;
  v1::TagWaits tag_waits;
  if (found && !tag_waits.ParseFromString(value)) return absl::DataLossError("damaged tag waits");
  if (found) late->tag_waits.Add(tag_waits);
  return absl::OkStatus();
}

void Appender::MarkStale(HostNumber host, uint64_t last_ns, Level placed) {
  for (int l = 1; l < kLevels; ++l) {
    const auto level = static_cast<Level>(l);
    if (level < placed) continue;
    const uint64_t start = last_ns / LevelNs(level) * LevelNs(level);
    Bucket of_host{level, UnitKind::kHost, host, start};
    Bucket of_group{level, UnitKind::kGroup, GroupOf(host), start};
    if (level > placed && s_.dirty->Mark(of_host, now_ns_, &batch_)) new_marks_.push_back(of_host);
    if (s_.dirty->Mark(of_group, now_ns_, &batch_)) new_marks_.push_back(of_group);
  }
}

absl::StatusOr<rocksdb::WriteBatch*> Appender::Finish() {
  for (auto& [key, late] : late_) {
    const auto& [level, host, last_ns] = key;
    rocksdb::ColumnFamilyHandle* family = s_.database->family(PointsFamily(level));
    auto put = [&, level = level, host = host, last_ns = last_ns](PointKind kind,
                                                                  const std::string& value) {
      batch_.Put(family, EncodePointKey(level, kind, host, last_ns), value);
    };
    if (late.rows.keys() > 0) {
      put(PointKind::kHostRows,
          EncodeRows(late.rows.Finish(s_.rollup->LimitsOf(level)), LevelNs(level)));
    }
    if (!late.coverage.empty()) {
      put(PointKind::kCoverage, ToStored(late.coverage).SerializeAsString());
    }
    if (!late.losses.empty()) put(PointKind::kLosses, ToStored(late.losses).SerializeAsString());
    if (!late.tag_waits.empty()) {
      put(PointKind::kTagWaits, late.tag_waits.Finish().SerializeAsString());
    }
  }
  late_.clear();
  s_.high_water->AddTo(&batch_);
  return &batch_;
}

void Appender::Commit() {
  s_.interner->Commit();
  s_.dictionaries->Commit();
  s_.high_water->Commit();
}

void Appender::Abandon() {
  s_.interner->Abandon();
  s_.dictionaries->Abandon();
  s_.high_water->Abandon();
  // Without this the next write would rely on marks that are not on disk.
  for (const Bucket& bucket : new_marks_) s_.dirty->Unmark(bucket);
}

}  // namespace fleetblame::aggregator
