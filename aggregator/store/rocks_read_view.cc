// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/rocks_read_view.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "aggregator/store/books.h"
#include "aggregator/store/rocks_status.h"
#include "aggregator/store/row_codec.h"
#include "aggregator/store/stored.pb.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {
namespace {

bool Contains(std::span<const uint32_t> sorted, uint32_t number) {
  return std::binary_search(sorted.begin(), sorted.end(), number);
}

bool MentionsAny(const v1::RowBlock& rows, std::span<const IntentNumber> intents) {
  return std::any_of(rows.intents().begin(), rows.intents().end(),
                     [intents](uint32_t n) { return n != 0 && Contains(intents, n); });
}

// Takes out of a block what rows summed over hosts do not keep.
void MakeFleetRows(const Interner& interner, v1::RowBlock* rows) {
  for (uint32_t& file : *rows->mutable_files()) file = 0;
  for (uint32_t& device : *rows->mutable_devices()) device = interner.FleetDevice(device);
}

}  // namespace

// One call of Scan*: iterators, the block that is being shown, and whether the sink wants more.
class RocksReadView::Scan {
 public:
  Scan(const RocksReadView& view, const ScanRange& range, const BlockSink& sink)
      : view_(view), range_(range), sink_(sink), reader_(view.sources_.database, view.snapshot_) {}

  absl::Status Hosts(std::span<const HostNumber> hosts) {
    for (HostNumber host : hosts) {
      shown_ = false;
      absl::Status status = Host(host, range_.start_unix_ns, range_.end_unix_ns, range_.coarsest);
      if (!status.ok() || stopped_) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Fleet() {
    fleet_ = true;
    for (uint32_t group = 0; group <= LastGroup(); ++group) {
      if (!Wanted(group)) continue;
      for (const Segment& segment : CoverGroup(group, Level::k1m)) {
        absl::Status status = segment.finer ? HostsOfGroup(group, segment, Level::k1m)
                                            : Blocks(PointKind::kGroupRows, group, 0, segment);
        if (!status.ok() || stopped_) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Intents(std::span<const IntentNumber> intents) {
    wanted_intents_ = intents;
    // Groups mostly share their segments; each is walked once for all of them.
    std::map<std::tuple<Level, uint64_t, uint64_t>, std::vector<uint32_t>> shared;
    for (uint32_t group = 0; group <= LastGroup(); ++group) {
      if (!Wanted(group)) continue;
      for (const Segment& segment : CoverGroup(group, kFirstIntentLevel)) {
        if (segment.finer) {
          absl::Status status =
              HostsOfGroup(group, segment, std::min(range_.coarsest, kFirstIntentLevel));
          if (!status.ok() || stopped_) return status;
        } else {
          shared[{segment.level, segment.from_unix_ns, segment.to_unix_ns}].push_back(group);
        }
      }
    }
    for (const auto& [segment, groups] : shared) {
      for (IntentNumber intent : intents) {
        absl::Status status = IntentRows(intent, std::get<0>(segment), std::get<1>(segment),
                                         std::get<2>(segment), groups);
        if (!status.ok() || stopped_) return status;
      }
    }
    return absl::OkStatus();
  }

 private:
  uint32_t LastGroup() const { return GroupOf(view_.host_count_); }
  // Whether a group belongs to the part that was asked for.
  bool Wanted(uint32_t group) const { return group % range_.parts == range_.part; }

  std::vector<Segment> CoverGroup(uint32_t group, Level finest) const {
    CoverRequest request;
    request.unit_kind = UnitKind::kGroup;
    request.unit = group;
    request.from_unix_ns = range_.start_unix_ns;
    request.to_unix_ns = range_.end_unix_ns;
    request.coarsest = range_.coarsest;
    request.finest = finest;
    // With coarser blocks forbidden nothing but hosts' own blocks is left.
    if (range_.coarsest < finest) {
      return {{Level::kRaw, range_.start_unix_ns, range_.end_unix_ns, true}};
    }
    return Cover(request, *view_.dirty_, view_.horizons_);
  }

  absl::Status HostsOfGroup(uint32_t group, const Segment& segment, Level coarsest) {
    coarsest = std::min(coarsest, range_.coarsest);
    uint32_t first = std::max(group * kHostsPerGroup, 1u);
    uint32_t last = std::min((group + 1) * kHostsPerGroup - 1, view_.host_count_);
    for (HostNumber host = first; host <= last; ++host) {
      absl::Status status = Host(host, segment.from_unix_ns, segment.to_unix_ns, coarsest);
      if (!status.ok() || stopped_) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Host(HostNumber host, uint64_t from, uint64_t to, Level coarsest) {
    CoverRequest request;
    request.unit = host;
    request.from_unix_ns = from;
    request.to_unix_ns = to;
    request.coarsest = coarsest;
    for (const Segment& segment : Cover(request, *view_.dirty_, view_.horizons_)) {
      absl::Status status = segment.level == Level::kRaw
                                ? Windows(host, fleet_ ? 0 : host, segment)
                                : Blocks(PointKind::kHostRows, host, fleet_ ? 0 : host, segment);
      if (!status.ok() || stopped_ || Enough()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Blocks(PointKind kind, uint32_t unit, HostNumber shown_host,
                      const Segment& segment) {
    absl::Status error;
    absl::Status status = reader_.Scan(
        segment.level, kind, unit, segment.from_unix_ns, segment.to_unix_ns,
        [&](const PointKey& key, std::string_view value) {
          if (!wanted_intents_.empty()) {
            bool mentioned = false;
            error = MentionsIntents(value, wanted_intents_, &mentioned);
            if (!error.ok()) return false;
            if (!mentioned) return true;
          }
          uint64_t span_ns = 0;
          error = DecodeRows(value, &rows_, &span_ns, range_.histograms);
          if (!error.ok()) return false;
          if (fleet_ && kind == PointKind::kHostRows) {
            MakeFleetRows(*view_.sources_.interner, &rows_);
          }
          return Show(rows_, shown_host, segment.level, key.last_ns + 1, span_ns) && !Enough();
        });
    return error.ok() ? status : error;
  }

  // Raw windows, those of a whole minute maybe in one value under the minute's last instant.
  absl::Status Windows(HostNumber host, HostNumber shown_host, const Segment& segment) {
    const uint64_t minute = LevelNs(Level::k1m);
    const uint64_t to = (segment.to_unix_ns + minute - 1) / minute * minute;
    absl::Status error;
    absl::Status status = reader_.Scan(
        Level::kRaw, PointKind::kHostRows, host, segment.from_unix_ns, to,
        [&](const PointKey& key, std::string_view value) {
          if (!IsWindowSplit(value)) {
            if (key.last_ns >= segment.to_unix_ns) return true;
            uint64_t span_ns = 0;
            error = DecodeRows(value, &rows_, &span_ns, range_.histograms);
            return error.ok() && ShowRows(&rows_, shown_host, key.last_ns + 1, span_ns);
          }
          error = ReadWindowSplit(value, key, &reader_, &windows_);
          if (!error.ok()) return false;
          for (SplitWindow& w : windows_) {
            if (w.last_ns < segment.from_unix_ns || w.last_ns >= segment.to_unix_ns) continue;
            if (!ShowRows(&w.rows, shown_host, w.last_ns + 1, w.span_ns)) return false;
          }
          return true;
        });
    return error.ok() ? status : error;
  }

  // Shows a raw window, unless it is of no interest; false when that was enough.
  bool ShowRows(v1::RowBlock* rows, HostNumber shown_host, uint64_t end_unix_ns, uint64_t span_ns) {
    if (!wanted_intents_.empty() && !MentionsAny(*rows, wanted_intents_)) return true;
    if (fleet_) MakeFleetRows(*view_.sources_.interner, rows);
    return Show(*rows, shown_host, Level::kRaw, end_unix_ns, span_ns) && !Enough();
  }

  absl::Status IntentRows(IntentNumber intent, Level level, uint64_t from, uint64_t to,
                          const std::vector<uint32_t>& groups) {
    absl::Status error;
    absl::Status status = reader_.Scan(
        level, PointKind::kIntentRows, intent, from, to,
        [&](const PointKey& key, std::string_view value) {
          std::string_view suffix = key.suffix;
          uint32_t group = 0;
          if (!TakeBigEndian32(&suffix, &group)) {
            error = absl::DataLossError("a key of an intent's rows is damaged");
            return false;
          }
          if (!std::binary_search(groups.begin(), groups.end(), group)) return true;
          if (!intent_rows_.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
            error = absl::DataLossError("a stored block of an intent is damaged");
            return false;
          }
          const stored::IntentRows& in = intent_rows_;
          return ByHost(in.dirtier_rows(), in.dirtier_hosts(), in.dirtier_row_counts(), false,
                        level, key.last_ns + 1) &&
                 ByHost(in.issuer_rows(), in.issuer_hosts(), in.issuer_row_counts(), true, level,
                        key.last_ns + 1);
        });
    return error.ok() ? status : error;
  }

  // Shows rows of several hosts as one block for each. A row that was found by its issuer is left
  // to its dirtier when that intent is wanted too.
  bool ByHost(const v1::RowBlock& rows, const google::protobuf::RepeatedField<uint32_t>& hosts,
              const google::protobuf::RepeatedField<uint32_t>& counts, bool by_issuer, Level level,
              uint64_t end_unix_ns) {
    RowBlockReader reader(rows);
    BlockRow row;
    for (int h = 0; h < hosts.size() && h < counts.size(); ++h) {
      for (uint32_t i = 0; i < counts.Get(h) && reader.Next(&row); ++i) {
        if (by_issuer && wanted_intents_.size() > 1 &&
            Contains(wanted_intents_, row.dirtier_intent)) {
          continue;
        }
        builder_.Add(row);
      }
      if (builder_.rows() == 0) continue;
      if (!Show(builder_.Finish(), hosts.Get(h), level, end_unix_ns, LevelNs(level))) return false;
    }
    return true;
  }

  bool Show(const v1::RowBlock& rows, HostNumber host, Level level, uint64_t end_unix_ns,
            uint64_t span_ns) {
    ScannedBlock block;
    block.host = host;
    block.level = level;
    block.start_unix_ns = end_unix_ns - std::min(span_ns, end_unix_ns);
    block.end_unix_ns = end_unix_ns;
    block.rows = &rows;
    shown_ = true;
    stopped_ = !sink_(block);
    return !stopped_;
  }
  // Whether nothing more of this host is asked for.
  bool Enough() const { return range_.one_block_a_host && shown_; }

  const RocksReadView& view_;
  const ScanRange range_;
  const BlockSink& sink_;
  PointReader reader_;
  bool fleet_ = false;
  bool stopped_ = false;
  bool shown_ = false;  // anything of the host that is being read
  std::span<const IntentNumber> wanted_intents_;
  v1::RowBlock rows_;  // reused: keeps its memory from block to block
  std::vector<SplitWindow> windows_;
  stored::IntentRows intent_rows_;
  RowBlockBuilder builder_;
};

RocksReadView::RocksReadView(const ReadSources& sources, std::shared_ptr<const DirtyCopy> dirty,
                             const Horizons& horizons, uint64_t first_unix_ns,
                             uint64_t last_unix_ns)
    : sources_(sources),
      dirty_(std::move(dirty)),
      horizons_(horizons),
      first_unix_ns_(first_unix_ns),
      last_unix_ns_(last_unix_ns),
      host_count_(sources.hosts->count()),
      snapshot_(sources.database->db()->GetSnapshot()) {}

RocksReadView::~RocksReadView() { sources_.database->db()->ReleaseSnapshot(snapshot_); }

// Times without data cost nothing, however far away they are. Whole days stay whole, or the
// coarsest blocks would not fit any more.
ScanRange RocksReadView::Clamp(const ScanRange& range) const {
  ScanRange clamped = range;
  if (first_unix_ns_ >= last_unix_ns_) {
    clamped.end_unix_ns = clamped.start_unix_ns;
    return clamped;
  }
  const uint64_t day_ns = LevelNs(Level::k1d);
  const uint64_t first_day = first_unix_ns_ / day_ns * day_ns;
  const uint64_t last_day_end = (last_unix_ns_ - 1) / day_ns * day_ns + day_ns;
  clamped.start_unix_ns = std::max(range.start_unix_ns, first_day);
  clamped.end_unix_ns = std::min(range.end_unix_ns, last_day_end);
  return clamped;
}

std::vector<HostRecord> RocksReadView::Hosts() const {
  std::vector<HostRecord> hosts = sources_.hosts->All();
  if (hosts.size() > host_count_) hosts.resize(host_count_);
  return hosts;
}

absl::Status RocksReadView::ScanHosts(std::span<const HostNumber> hosts, const ScanRange& range,
                                      const BlockSink& sink) const {
  ScanRange clamped = Clamp(range);
  if (clamped.start_unix_ns >= clamped.end_unix_ns) return absl::OkStatus();
  return Scan(*this, clamped, sink).Hosts(hosts);
}

absl::Status RocksReadView::ScanIntents(std::span<const IntentNumber> intents,
                                        const ScanRange& range, const BlockSink& sink) const {
  ScanRange clamped = Clamp(range);
  if (clamped.start_unix_ns >= clamped.end_unix_ns || intents.empty()) return absl::OkStatus();
  return Scan(*this, clamped, sink).Intents(intents);
}

absl::Status RocksReadView::ScanFleet(const ScanRange& range, const BlockSink& sink) const {
  ScanRange clamped = Clamp(range);
  if (clamped.start_unix_ns >= clamped.end_unix_ns) return absl::OkStatus();
  return Scan(*this, clamped, sink).Fleet();
}

absl::StatusOr<v1::Intent> RocksReadView::Intent(IntentNumber number) const {
  return sources_.interner->Intent(number, snapshot_);
}
absl::StatusOr<v1::Actor> RocksReadView::Actor(ActorNumber number) const {
  return sources_.interner->Actor(number, snapshot_);
}
absl::StatusOr<v1::Device> RocksReadView::Device(DeviceNumber number) const {
  return sources_.interner->Device(number, snapshot_);
}
absl::StatusOr<v1::File> RocksReadView::File(FileNumber number) const {
  return sources_.interner->File(number, snapshot_);
}

absl::StatusOr<std::vector<IntentNumber>> RocksReadView::FindIntents(std::string_view hex_prefix,
                                                                     size_t limit) const {
  std::vector<IntentNumber> found;
  std::string wanted = absl::AsciiStrToLower(std::string(hex_prefix));
  if (wanted.find_first_not_of("0123456789abcdef") != std::string::npos) return found;
  // Whole bytes are sought; a last half byte is compared.
  std::string seek = IndexKey(DefinitionKind::kIntent,
                              absl::HexStringToBytes(wanted.substr(0, wanted.size() / 2 * 2)));
  rocksdb::ReadOptions options;
  options.snapshot = snapshot_;
  std::unique_ptr<rocksdb::Iterator> at(
      sources_.database->db()->NewIterator(options, sources_.database->family(Family::kIndex)));
  for (at->Seek(seek); at->Valid() && at->key().starts_with(seek) && found.size() < limit;
       at->Next()) {
    std::string hex = absl::BytesToHexString(at->key().ToString().substr(1));
    std::string_view value = FromSlice(at->value());
    uint32_t number = 0;
    if (hex.compare(0, wanted.size(), wanted) != 0 || !TakeBigEndian32(&value, &number)) continue;
    found.push_back(number);
  }
  if (!at->status().ok()) return FromRocks(at->status(), "search for intents");
  return found;
}

absl::Status RocksReadView::ForEachIntent(
    const std::function<bool(IntentNumber, const v1::Intent&)>& sink) const {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot_;
  std::unique_ptr<rocksdb::Iterator> at(sources_.database->db()->NewIterator(
      options, sources_.database->family(Family::kDefinitions)));
  std::string prefix = DefinitionPrefix(DefinitionKind::kIntent);
  v1::Intent intent;
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    std::string_view key = FromSlice(at->key()).substr(prefix.size());
    uint32_t number = 0;
    if (!TakeBigEndian32(&key, &number) ||
        !intent.ParseFromArray(at->value().data(), static_cast<int>(at->value().size()))) {
      return absl::DataLossError("a stored intent is damaged");
    }
    if (!sink(number, intent)) return absl::OkStatus();
  }
  return FromRocks(at->status(), "read intents");
}

absl::StatusOr<ReadView::SeenSpan> RocksReadView::IntentSeen(IntentNumber number) const {
  if (number == 0 || number > sources_.interner->count(DefinitionKind::kIntent)) {
    return absl::NotFoundError(absl::StrCat("no intent number ", number));
  }
  return sources_.intent_seen->Get(number);
}

absl::StatusOr<std::vector<StoredGap>> RocksReadView::Gaps(std::span<const HostNumber> hosts,
                                                           const ScanRange& range) const {
  std::vector<StoredGap> out;
  rocksdb::ReadOptions options;
  options.snapshot = snapshot_;
  std::unique_ptr<rocksdb::Iterator> at(
      sources_.database->db()->NewIterator(options, sources_.database->family(Family::kGaps)));
  for (size_t i = 0; i < hosts.size(); ++i) {
    const HostNumber host = hosts[i];
    std::string prefix = GapPrefix(host);
    std::string seek = prefix;
    PutBigEndian64(&seek, range.start_unix_ns + 1);  // the first that ends inside
    at->Seek(seek);
    // Hosts without gaps are passed over together.
    std::string_view rest = at->Valid() ? FromSlice(at->key()) : std::string_view();
    uint32_t next = UINT32_MAX;
    if (TakeBigEndian32(&rest, &next) || !at->Valid()) {
      while (i + 1 < hosts.size() && hosts[i + 1] < next) ++i;
    }
    for (; at->Valid() && at->key().starts_with(prefix); at->Next()) {
      StoredGap gap;
      gap.host = host;
      if (!gap.gap.ParseFromArray(at->value().data(), static_cast<int>(at->value().size()))) {
        return absl::DataLossError("a stored gap is damaged");
      }
      if (gap.gap.start_unix_ns() < range.end_unix_ns) out.push_back(std::move(gap));
    }
    if (!at->status().ok()) return FromRocks(at->status(), "read gaps");
  }
  return out;
}

absl::StatusOr<std::vector<StoredCoverage>> RocksReadView::Coverage(
    std::span<const HostNumber> hosts, const ScanRange& range) const {
  std::vector<StoredCoverage> out;
  ScanRange clamped = Clamp(range);
  PointReader reader(sources_.database, snapshot_);
  for (HostNumber host : hosts) {
    CoverageSums sums;
    CoverRequest request{UnitKind::kHost,  host,       clamped.start_unix_ns, clamped.end_unix_ns,
                         clamped.coarsest, Level::kRaw};
    absl::Status error;
    for (const Segment& segment : Cover(request, *dirty_, horizons_)) {
      absl::Status status = reader.Scan(
          segment.level, PointKind::kCoverage, host, segment.from_unix_ns, segment.to_unix_ns,
          [&](const PointKey&, std::string_view value) {
            stored::Coverage coverage;
            if (!coverage.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
              error = absl::DataLossError("stored coverage is damaged");
              return false;
            }
            AddCoverage(coverage, &sums);
            return true;
          });
      if (!error.ok()) return error;
      if (!status.ok()) return status;
    }
    for (auto& [key, sample] : sums) out.push_back({host, key.first, std::move(sample)});
  }
  return out;
}

RocksReadView::Segments RocksReadView::SharedSegments(std::span<const HostNumber> hosts,
                                                      const ScanRange& clamped) const {
  Segments shared;
  for (HostNumber host : hosts) {
    CoverRequest request{UnitKind::kHost,  host,       clamped.start_unix_ns, clamped.end_unix_ns,
                         clamped.coarsest, Level::kRaw};
    for (const Segment& s : Cover(request, *dirty_, horizons_)) {
      shared[{s.level, s.from_unix_ns, s.to_unix_ns}].push_back(host);
    }
  }
  return shared;
}

absl::StatusOr<std::map<std::string, uint64_t>> RocksReadView::Losses(
    std::span<const HostNumber> hosts, const ScanRange& range) const {
  LossSums sums;
  PointReader reader(sources_.database, snapshot_);
  absl::Status error;
  // Most hosts lose nothing: looking at each by itself would cost more than everything else.
  for (const auto& [segment, units] : SharedSegments(hosts, Clamp(range))) {
    absl::Status status = reader.ScanUnits(
        std::get<0>(segment), PointKind::kLosses, units, std::get<1>(segment), std::get<2>(segment),
        [&](const PointKey&, std::string_view value) {
          stored::Losses losses;
          if (!losses.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
            error = absl::DataLossError("stored losses are damaged");
            return false;
          }
          AddLosses(losses, &sums);
          return true;
        });
    if (!error.ok()) return error;
    if (!status.ok()) return status;
  }
  return sums;
}

absl::Status RocksReadView::TagWaits(std::span<const HostNumber> hosts, const ScanRange& range,
                                     const TagWaitsSink& sink) const {
  PointReader reader(sources_.database, snapshot_);
  absl::Status error;
  bool stopped = false;
  v1::TagWaits waits;
  for (const auto& [segment, units] : SharedSegments(hosts, Clamp(range))) {
    absl::Status status = reader.ScanUnits(
        std::get<0>(segment), PointKind::kTagWaits, units, std::get<1>(segment),
        std::get<2>(segment), [&](const PointKey& key, std::string_view value) {
          if (!waits.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
            error = absl::DataLossError("stored tag waits are damaged");
            return false;
          }
          stopped = !sink({key.unit, key.last_ns + 1, &waits});
          return !stopped;
        });
    if (!error.ok()) return error;
    if (!status.ok() || stopped) return status;
  }
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
