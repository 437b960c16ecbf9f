// SPDX-License-Identifier: Apache-2.0
//
// Ties the parts together. Two locks: `append_mutex_` makes writers take turns, `state_mutex_`
// guards what a view must see as one moment. The first is taken before the second.
#include "aggregator/store/rocks_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/store/appender.h"
#include "aggregator/store/free_space.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/retention.h"
#include "aggregator/store/rocks_read_view.h"
#include "aggregator/store/rocks_status.h"
#include "common/absl_view.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kHousekeepingEveryNs = 3600 * kSecondNs;
constexpr int64_t kResumeEveryNs = 1'000'000'000;
// Buckets that are made before the append lock is taken to write them.
constexpr size_t kBucketsPerRound = 128;
constexpr size_t kRoundBytes = 8 << 20;

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t UnixNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

uint64_t RandomEpoch() {
  std::random_device device;
  uint64_t epoch = static_cast<uint64_t>(device()) << 32 | device();
  return epoch == 0 ? 1 : epoch;
}

class RocksStore : public Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Open(const RocksStoreOptions& options);

  uint64_t dictionary_epoch() const override { return epoch_; }
  absl::StatusOr<std::vector<HostNumber>> UpsertHosts(std::span<const HostRecord> hosts) override;
  absl::StatusOr<uint64_t> DurableSeq(HostNumber host, uint64_t spool_epoch) const override {
    return high_water_.Durable(host, spool_epoch);
  }
  absl::StatusOr<std::vector<AppendResult>> Append(std::span<const IncomingBatch> batches) override;
  absl::Status AddDefinitions(HostNumber host, const v1::Definitions& definitions) override;
  absl::Status AddGap(HostNumber host, const v1::Gap& gap) override;
  absl::Status SkipTo(HostNumber host, uint64_t spool_epoch, uint64_t seq,
                      const v1::Gap& gap) override;
  absl::Status PutDirectives(const v1::ListDirectivesResponse::Set& set) override;
  absl::Status DeleteDirectives(std::string_view name) override;
  absl::StatusOr<std::vector<v1::ListDirectivesResponse::Set>> ListDirectives() const override;
  std::unique_ptr<ReadView> NewReadView() const override;
  absl::Status Upkeep(uint64_t now_unix_ns, uint64_t budget_ns) override;
  std::map<std::string, double> Gauges() const override;

 private:
  struct Deadline {
    int64_t at_ns;
    bool Over() const { return SteadyNs() >= at_ns; }
  };

  RocksStore(const RocksStoreOptions& options, std::unique_ptr<Database> database)
      : options_(options),
        database_(std::move(database)),
        dictionaries_(database_.get(), options.dictionary_cache_entries),
        hosts_(database_.get()),
        intent_seen_(database_.get()),
        dirty_(database_.get()),
        high_water_(database_.get()),
        free_space_(options.path, options.min_free_bytes) {}

  absl::Status Load();
  absl::Status LoadEpoch();
  absl::Status LoadBounds();
  AppendSources Sources() ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  Appender NewAppender() ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  // Refuses while the store is read-only or the disk is full; tries to get out of it.
  absl::Status CheckWritable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  absl::Status Write(rocksdb::WriteBatch* batch, bool sync)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);
  absl::Status WriteAppender(Appender* appender) ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mutex_);

  absl::Status RollUp(Level level, UnitKind kind, uint64_t now_unix_ns, const Deadline& deadline);
  // One round of it; `*done` counts buckets that came clean.
  absl::Status RollUpSome(Level level, UnitKind kind, uint64_t now_unix_ns,
                          const Deadline& deadline, size_t* done);
  bool Blocked(const Bucket& bucket, const DirtyCopy& dirty) const;
  absl::Status ApplyRetention(uint64_t now_unix_ns);
  absl::Status Housekeeping(uint64_t now_unix_ns);

  const RocksStoreOptions options_;
  const std::unique_ptr<Database> database_;
  uint64_t epoch_ = 0;
  std::unique_ptr<Interner> interner_;
  std::unique_ptr<Rollup> rollup_;  // RollUpSome uses it under upkeep_mutex_

  // Upkeep comes from one thread, but nothing breaks if it does not.
  absl::Mutex upkeep_mutex_ ABSL_ACQUIRED_BEFORE(append_mutex_);
  uint64_t housekept_unix_ns_ ABSL_GUARDED_BY(upkeep_mutex_) = 0;

  mutable absl::Mutex append_mutex_;
  Dictionaries dictionaries_;  // under append_mutex_
  HostTable hosts_;
  IntentSeenTable intent_seen_;
  DirtyMarks dirty_;
  HighWater high_water_;
  FreeSpace free_space_;
  absl::Status write_error_ ABSL_GUARDED_BY(append_mutex_);
  int64_t resumed_ns_ ABSL_GUARDED_BY(append_mutex_) = 0;

  mutable absl::Mutex state_mutex_ ABSL_ACQUIRED_AFTER(append_mutex_);
  Horizons horizons_ ABSL_GUARDED_BY(state_mutex_){};
  uint64_t first_unix_ns_ ABSL_GUARDED_BY(state_mutex_) = UINT64_MAX;
  uint64_t last_unix_ns_ ABSL_GUARDED_BY(state_mutex_) = 0;

  std::atomic<uint64_t> rows_{0};
  std::atomic<uint64_t> batches_{0};
  std::atomic<uint64_t> duplicates_{0};
  std::atomic<uint64_t> tag_wait_rows_{0};
  std::atomic<uint64_t> too_old_rows_{0};
  std::atomic<uint64_t> rolled_up_{0};
  std::atomic<uint64_t> rollups_raced_{0};
  std::atomic<uint64_t> write_errors_{0};
  std::atomic<bool> read_only_{false};
};

absl::StatusOr<std::unique_ptr<Store>> RocksStore::Open(const RocksStoreOptions& options) {
  if (!std::is_sorted(options.retention_ns.begin(), options.retention_ns.end())) {
    return absl::InvalidArgumentError(
        "retention of a coarser resolution must not be shorter than that of a finer one");
  }
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(options);
  if (!database.ok()) return database.status();
  std::unique_ptr<RocksStore> store(new RocksStore(options, *std::move(database)));
  if (absl::Status status = store->Load(); !status.ok()) return status;
  return store;
}

absl::Status RocksStore::Load() {
  absl::MutexLock lock(&append_mutex_);
  absl::StatusOr<std::unique_ptr<Interner>> interner = Interner::Open(database_.get(), options_);
  if (!interner.ok()) return interner.status();
  interner_ = *std::move(interner);
  absl::StatusOr<Horizons> horizons = LoadHorizons(*database_);
  if (!horizons.ok()) return horizons.status();
  {
    absl::MutexLock state_lock(&state_mutex_);
    horizons_ = *horizons;
  }
  for (absl::Status status :
       {LoadEpoch(), LoadBounds(), hosts_.Load(), intent_seen_.Load(), dirty_.Load()}) {
    if (!status.ok()) return status;
  }
  rocksdb::WriteBatch batch;
  absl::StatusOr<ActorNumber> other = interner_->OtherActor(&batch);
  if (!other.ok()) return other.status();
  if (batch.Count() > 0) {
    if (absl::Status status = Write(&batch, true); !status.ok()) return status;
  }
  interner_->Commit();
  rollup_ = std::make_unique<Rollup>(database_.get(), interner_.get(), options_, *other);
  return absl::OkStatus();
}

absl::Status RocksStore::LoadEpoch() {
  std::string value;
  bool found = false;
  absl::Status status = database_->Get(Family::kMeta, EpochKey(), &value, &found);
  if (!status.ok()) return status;
  std::string_view rest = value;
  if (found && TakeBigEndian64(&rest, &epoch_)) return absl::OkStatus();
  epoch_ = RandomEpoch();
  rocksdb::WriteOptions sync;
  sync.sync = true;
  return FromRocks(
      database_->db()->Put(sync, database_->family(Family::kMeta), EpochKey(), Value64(epoch_)),
      absl::StrCat("write to store ", options_.path));
}

// To the partition; that is enough to keep scans of "everything" short.
absl::Status RocksStore::LoadBounds() {
  absl::MutexLock lock(&state_mutex_);
  for (int l = 0; l < kLevels; ++l) {
    const auto level = static_cast<Level>(l);
    std::unique_ptr<rocksdb::Iterator> at(database_->db()->NewIterator(
        rocksdb::ReadOptions(), database_->family(PointsFamily(level))));
    at->SeekToFirst();
    if (!at->Valid()) {
      if (!at->status().ok()) return FromRocks(at->status(), "read the first point");
      continue;
    }
    std::optional<PointKey> first = DecodePointKey(FromSlice(at->key()));
    at->SeekToLast();
    if (!at->Valid()) return FromRocks(at->status(), "read the last point");
    std::optional<PointKey> last = DecodePointKey(FromSlice(at->key()));
    if (!first || !last) return absl::DataLossError("a key of a point is damaged");
    first_unix_ns_ = std::min(first_unix_ns_, first->partition * PartitionNs(level));
    last_unix_ns_ = std::max(last_unix_ns_, (last->partition + uint64_t{1}) * PartitionNs(level));
  }
  return absl::OkStatus();
}

AppendSources RocksStore::Sources() {
  AppendSources sources;
  sources.database = database_.get();
  sources.interner = interner_.get();
  sources.dictionaries = &dictionaries_;
  sources.hosts = &hosts_;
  sources.intent_seen = &intent_seen_;
  sources.dirty = &dirty_;
  sources.high_water = &high_water_;
  sources.rollup = rollup_.get();
  return sources;
}

Appender RocksStore::NewAppender() {
  Horizons horizons;
  {
    absl::MutexLock lock(&state_mutex_);
    horizons = horizons_;
  }
  return Appender(Sources(), horizons, UnixNs(), SteadyNs());
}

absl::Status RocksStore::CheckWritable() {
  if (absl::Status status = free_space_.Check(); !status.ok()) return status;
  if (write_error_.ok()) return absl::OkStatus();
  // The database refuses writes after an error until it is told to go on.
  int64_t now_ns = SteadyNs();
  if (now_ns - resumed_ns_ < kResumeEveryNs) return write_error_;
  resumed_ns_ = now_ns;
  rocksdb::Status resumed = database_->db()->Resume();
  if (!resumed.ok()) return write_error_;
  write_error_ = absl::OkStatus();
  read_only_ = false;
  return absl::OkStatus();
}

absl::Status RocksStore::Write(rocksdb::WriteBatch* batch, bool sync) {
  rocksdb::WriteOptions options;
  options.sync = sync;
  rocksdb::Status status = database_->db()->Write(options, batch);
  if (status.ok()) return absl::OkStatus();
  ++write_errors_;
  read_only_ = true;
  resumed_ns_ = SteadyNs();
  write_error_ = FromRocks(status, absl::StrCat("write to store ", options_.path));
  return write_error_;
}

absl::Status RocksStore::WriteAppender(Appender* appender) {
  absl::StatusOr<rocksdb::WriteBatch*> batch = appender->Finish();
  absl::Status status = batch.status();
  if (status.ok()) {
    // Before the write: a view must not clamp away what it may see.
    absl::MutexLock lock(&state_mutex_);
    first_unix_ns_ = std::min(first_unix_ns_, appender->first_unix_ns());
    last_unix_ns_ = std::max(last_unix_ns_, appender->last_unix_ns());
  }
  if (status.ok() && (*batch)->Count() > 0) status = Write(*batch, true);
  if (status.ok()) {
    appender->Commit();
    rows_ += appender->rows();
    tag_wait_rows_ += appender->tag_wait_rows();
    too_old_rows_ += appender->too_old_rows();
  } else {
    appender->Abandon();
  }
  return status;
}

absl::StatusOr<std::vector<HostNumber>> RocksStore::UpsertHosts(std::span<const HostRecord> hosts) {
  for (const HostRecord& host : hosts) {
    if (host.host_id.empty()) return absl::InvalidArgumentError("a host without an id");
  }
  std::vector<HostNumber> numbers;
  if (hosts.empty()) return numbers;
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  rocksdb::WriteBatch batch;
  std::vector<HostRecord> prepared = hosts_.Prepare(hosts, &batch);
  if (absl::Status status = Write(&batch, true); !status.ok()) return status;
  hosts_.Commit(prepared);
  numbers.reserve(prepared.size());
  for (const HostRecord& host : prepared) numbers.push_back(host.number);
  return numbers;
}

absl::StatusOr<std::vector<AppendResult>> RocksStore::Append(
    std::span<const IncomingBatch> batches) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  Appender appender = NewAppender();
  std::vector<AppendResult> results;
  results.reserve(batches.size());
  uint64_t durable = 0;
  uint64_t duplicates = 0;
  for (const IncomingBatch& in : batches) {
    absl::StatusOr<AppendResult> result = appender.Add(in);
    if (!result.ok()) {
      appender.Abandon();
      return result.status();
    }
    durable += result->outcome == AppendResult::Outcome::kDurable ? 1 : 0;
    duplicates += result->outcome == AppendResult::Outcome::kDuplicate ? 1 : 0;
    results.push_back(*std::move(result));
  }
  if (absl::Status status = WriteAppender(&appender); !status.ok()) return status;
  batches_ += durable;
  duplicates_ += duplicates;
  return results;
}

absl::Status RocksStore::AddDefinitions(HostNumber host, const v1::Definitions& definitions) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  Appender appender = NewAppender();
  if (absl::Status status = appender.AddDefinitions(host, definitions); !status.ok()) {
    appender.Abandon();
    return status;
  }
  return WriteAppender(&appender);
}

absl::Status RocksStore::AddGap(HostNumber host, const v1::Gap& gap) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  Appender appender = NewAppender();
  appender.AddGap(host, gap);
  return WriteAppender(&appender);
}

absl::Status RocksStore::SkipTo(HostNumber host, uint64_t spool_epoch, uint64_t seq,
                                const v1::Gap& gap) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  absl::StatusOr<uint64_t> current = high_water_.Current(host, spool_epoch);
  if (!current.ok()) return current.status();
  Appender appender = NewAppender();
  appender.AddGap(host, gap);
  if (seq > *current) high_water_.Raise(host, spool_epoch, seq);
  return WriteAppender(&appender);
}

absl::Status RocksStore::PutDirectives(const v1::ListDirectivesResponse::Set& set) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  rocksdb::WriteBatch batch;
  batch.Put(database_->family(Family::kMeta), DirectivesKey(set.name()), set.SerializeAsString());
  return Write(&batch, true);
}

absl::Status RocksStore::DeleteDirectives(std::string_view name) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  std::string value;
  bool found = false;
  absl::Status status = database_->Get(Family::kMeta, DirectivesKey(name), &value, &found);
  if (!status.ok()) return status;
  if (!found) return absl::NotFoundError(absl::StrCat("no directives named ", ToAbsl(name)));
  rocksdb::WriteBatch batch;
  batch.Delete(database_->family(Family::kMeta), DirectivesKey(name));
  return Write(&batch, true);
}

absl::StatusOr<std::vector<v1::ListDirectivesResponse::Set>> RocksStore::ListDirectives() const {
  std::vector<v1::ListDirectivesResponse::Set> sets;
  std::unique_ptr<rocksdb::Iterator> at(
      database_->db()->NewIterator(rocksdb::ReadOptions(), database_->family(Family::kMeta)));
  std::string prefix = DirectivesPrefix();
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    if (!sets.emplace_back().ParseFromArray(at->value().data(),
                                            static_cast<int>(at->value().size()))) {
      return absl::DataLossError("a stored set of directives is damaged");
    }
  }
  if (!at->status().ok()) return FromRocks(at->status(), "read directives");
  return sets;
}

std::unique_ptr<ReadView> RocksStore::NewReadView() const {
  ReadSources sources{database_.get(), interner_.get(), &hosts_, &intent_seen_};
  absl::MutexLock lock(&state_mutex_);
  // Marks first, then the snapshot that RocksReadView takes: see dirty_marks.h. A mark that came in
  // between may belong to rows that the snapshot holds, so try again; after some attempts settle
  // for a view that shows a bucket as it was a moment ago.
  std::unique_ptr<RocksReadView> view;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const uint64_t version = dirty_.version();
    view = std::make_unique<RocksReadView>(sources, dirty_.Copy(), horizons_, first_unix_ns_,
                                           last_unix_ns_);
    if (dirty_.version() == version) break;
  }
  return view;
}

// Whether something finer, of which the bucket would be made, is stale itself.
bool RocksStore::Blocked(const Bucket& bucket, const DirtyCopy& dirty) const {
  const uint64_t end = bucket.start_unix_ns + LevelNs(bucket.level);
  if (bucket.unit_kind == UnitKind::kHost) {
    return bucket.level != Level::k1m &&
           !dirty
                .Stale(static_cast<Level>(static_cast<int>(bucket.level) - 1), UnitKind::kHost,
                       bucket.unit, bucket.start_unix_ns, end)
                .empty();
  }
  for (uint32_t i = 0; i < kHostsPerGroup; ++i) {
    if (!dirty
             .Stale(bucket.level, UnitKind::kHost, bucket.unit * kHostsPerGroup + i,
                    bucket.start_unix_ns, end)
             .empty()) {
      return true;
    }
  }
  return false;
}

absl::Status RocksStore::RollUpSome(Level level, UnitKind kind, uint64_t now_unix_ns,
                                    const Deadline& deadline, size_t* done) {
  *done = 0;
  const uint64_t grace = options_.rollup_grace_ns;
  const uint64_t closed = now_unix_ns > grace ? now_unix_ns - grace : 0;
  const int64_t settled =
      SteadyNs() - static_cast<int64_t>(options_.rollup_settle_ns[static_cast<size_t>(level)]);
  std::vector<DirtyMarks::Claim> claims;
  std::shared_ptr<const DirtyCopy> dirty;
  const rocksdb::Snapshot* snapshot = nullptr;
  Horizons horizons;
  {
    // No write is under way now, so the snapshot holds all that was marked so far.
    absl::MutexLock lock(&append_mutex_);
    absl::MutexLock state_lock(&state_mutex_);
    claims = dirty_.Collect(level, kind, closed, settled, 64 * kBucketsPerRound);
    if (claims.empty()) return absl::OkStatus();
    dirty = dirty_.Copy();
    snapshot = database_->db()->GetSnapshot();
    horizons = horizons_;
  }
  struct Made {
    DirtyMarks::Claim claim;
    rocksdb::WriteBatch batch;
  };
  std::vector<Made> made;
  absl::Status status;
  {
    PointReader reader(database_.get(), snapshot);
    size_t bytes = 0;
    for (const DirtyMarks::Claim& claim : claims) {
      if (made.size() >= kBucketsPerRound || bytes >= kRoundBytes || deadline.Over()) break;
      if (Blocked(claim.bucket, *dirty)) continue;
      Made& one = made.emplace_back();
      one.claim = claim;
      // Where the finer level is gone already the block cannot be made any better.
      const bool source_gone =
          kind == UnitKind::kHost &&
          claim.bucket.start_unix_ns < horizons[static_cast<size_t>(level) - 1];
      if (!source_gone) status = rollup_->Make(claim.bucket, hosts_.count(), &reader, &one.batch);
      if (!status.ok()) break;
      bytes += one.batch.GetDataSize();
      DirtyMarks::AddRemoval(*database_, claim.bucket, &one.batch);
    }
  }
  database_->db()->ReleaseSnapshot(snapshot);
  if (!status.ok()) return status;

  absl::MutexLock lock(&append_mutex_);
  if (status = CheckWritable(); !status.ok()) return status;
  for (Made& one : made) {
    // Rows came meanwhile: what was made lacks them. The mark stays.
    if (!dirty_.Unchanged(one.claim)) {
      ++rollups_raced_;
      continue;
    }
    // Not synced: should it be lost, its removal of the mark is lost with it.
    if (status = Write(&one.batch, false); !status.ok()) return status;
    dirty_.Clear(one.claim.bucket);
    ++*done;
  }
  rolled_up_ += *done;
  return absl::OkStatus();
}

absl::Status RocksStore::RollUp(Level level, UnitKind kind, uint64_t now_unix_ns,
                                const Deadline& deadline) {
  size_t done = 1;
  while (done > 0 && !deadline.Over()) {
    absl::Status status = RollUpSome(level, kind, now_unix_ns, deadline, &done);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RocksStore::ApplyRetention(uint64_t now_unix_ns) {
  for (int l = 0; l < kLevels; ++l) {
    const auto level = static_cast<Level>(l);
    uint64_t horizon = 0;
    {
      absl::MutexLock lock(&append_mutex_);
      Horizons present;
      {
        absl::MutexLock state_lock(&state_mutex_);
        present = horizons_;
      }
      horizon = NextHorizon(level, options_, now_unix_ns, present, dirty_);
      if (horizon <= present[static_cast<size_t>(l)]) continue;
      if (absl::Status status = CheckWritable(); !status.ok()) return status;
      rocksdb::WriteBatch batch;
      batch.Put(database_->family(Family::kMeta), HorizonKey(level), Value64(horizon));
      if (absl::Status status = Write(&batch, true); !status.ok()) return status;
      absl::MutexLock state_lock(&state_mutex_);
      horizons_[static_cast<size_t>(l)] = horizon;
    }
    if (absl::Status status = DropPointsBefore(*database_, level, horizon); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status RocksStore::Housekeeping(uint64_t now_unix_ns) {
  absl::MutexLock lock(&append_mutex_);
  if (absl::Status status = CheckWritable(); !status.ok()) return status;
  rocksdb::WriteBatch batch;
  absl::StatusOr<int> dropped =
      dictionaries_.DropSuperseded(UnixNs(), options_.dictionary_keep_ns, &batch);
  if (!dropped.ok()) return dropped.status();
  if (now_unix_ns > options_.gap_retention_ns) {
    absl::Status status =
        DropGapsBefore(*database_, now_unix_ns - options_.gap_retention_ns, &batch);
    if (!status.ok()) return status;
  }
  return batch.Count() == 0 ? absl::OkStatus() : Write(&batch, false);
}

absl::Status RocksStore::Upkeep(uint64_t now_unix_ns, uint64_t budget_ns) {
  absl::MutexLock lock(&upkeep_mutex_);
  const int64_t start_ns = SteadyNs();
  const Deadline deadline{start_ns +
                          static_cast<int64_t>(std::min<uint64_t>(budget_ns, 86400 * kSecondNs))};
  {
    absl::MutexLock append_lock(&append_mutex_);
    if (absl::Status status = CheckWritable(); !status.ok()) return status;
  }
  for (Level level : {Level::k1m, Level::k10m, Level::k1h, Level::k6h, Level::k1d}) {
    for (UnitKind kind : {UnitKind::kHost, UnitKind::kGroup}) {
      if (absl::Status status = RollUp(level, kind, now_unix_ns, deadline); !status.ok()) {
        return status;
      }
    }
  }
  if (absl::Status status = ApplyRetention(now_unix_ns); !status.ok()) return status;
  if (now_unix_ns >= housekept_unix_ns_ + kHousekeepingEveryNs) {
    if (absl::Status status = Housekeeping(now_unix_ns); !status.ok()) return status;
    housekept_unix_ns_ = now_unix_ns;
  }
  return absl::OkStatus();
}

std::map<std::string, double> RocksStore::Gauges() const {
  std::map<std::string, double> out;
  auto set = [&out](const char* name, auto value) { out[name] = static_cast<double>(value); };
  set("hosts", hosts_.count());
  set("intents", interner_->count(DefinitionKind::kIntent));
  set("actors", interner_->count(DefinitionKind::kActor));
  set("devices", interner_->count(DefinitionKind::kDevice));
  set("files", interner_->count(DefinitionKind::kFile));
  set("definitions_folded_total", interner_->folded());
  set("intent_collisions_total", interner_->collisions());
  set("rows_total", rows_.load());
  set("batches_total", batches_.load());
  set("duplicate_batches_total", duplicates_.load());
  set("tag_wait_rows_total", tag_wait_rows_.load());
  set("too_old_rows_total", too_old_rows_.load());
  set("rollups_pending", dirty_.size());
  set("rollups_total", rolled_up_.load());
  set("rollups_raced_total", rollups_raced_.load());
  set("minutes_shared_total", rollup_->minutes_shared());
  set("minutes_kept_total", rollup_->minutes_kept());
  set("write_errors_total", write_errors_.load());
  set("read_only", read_only_.load() ? 1 : 0);
  set("free_bytes", free_space_.free_bytes());
  uint64_t value = 0;
  auto property = [&](const char* name, const char* rocks_name) {
    if (database_->db()->GetAggregatedIntProperty(rocks_name, &value)) set(name, value);
  };
  property("disk_bytes", "rocksdb.total-sst-files-size");
  property("memtable_bytes", "rocksdb.cur-size-all-mem-tables");
  property("table_reader_bytes", "rocksdb.estimate-table-readers-mem");
  property("pending_compaction_bytes", "rocksdb.estimate-pending-compaction-bytes");
  if (database_->db()->GetIntProperty("rocksdb.block-cache-usage", &value)) {
    set("block_cache_bytes", value);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenRocksStore(const RocksStoreOptions& options) {
  return RocksStore::Open(options);
}

absl::Status RepairRocksStore(const RocksStoreOptions& options) {
  return Database::Repair(options);
}

absl::Status CompactRocksStore(const RocksStoreOptions& options) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(options);
  if (!database.ok()) return database.status();
  return (*database)->Compact();
}

}  // namespace fleetblame::aggregator
