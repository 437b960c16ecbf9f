// SPDX-License-Identifier: Apache-2.0
//
// The read side: a database snapshot together with the marks on stale buckets that belong to it.
//
// Threading: a view may be used from any thread, by one at a time or by several.
#ifndef AGGREGATOR_STORE_ROCKS_READ_VIEW_H_
#define AGGREGATOR_STORE_ROCKS_READ_VIEW_H_

#include <rocksdb/snapshot.h>

#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "aggregator/store/cover.h"
#include "aggregator/store/database.h"
#include "aggregator/store/dirty_marks.h"
#include "aggregator/store/host_table.h"
#include "aggregator/store/intent_seen.h"
#include "aggregator/store/interner.h"
#include "aggregator/store/point_reader.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

// All of it outlives the view.
struct ReadSources {
  const Database* database = nullptr;
  const Interner* interner = nullptr;
  const HostTable* hosts = nullptr;
  const IntentSeenTable* intent_seen = nullptr;
};

class RocksReadView : public ReadView {
 public:
  // Takes a new snapshot. The caller holds the state lock and has copied `dirty` before.
  // [first, last) bounds all data.
  RocksReadView(const ReadSources& sources, std::shared_ptr<const DirtyCopy> dirty,
                const Horizons& horizons, uint64_t first_unix_ns, uint64_t last_unix_ns);
  ~RocksReadView() override;

  std::vector<HostRecord> Hosts() const override;
  absl::Status ScanHosts(std::span<const HostNumber> hosts, const ScanRange& range,
                         const BlockSink& sink) const override;
  absl::Status ScanIntents(std::span<const IntentNumber> intents, const ScanRange& range,
                           const BlockSink& sink) const override;
  absl::Status ScanFleet(const ScanRange& range, const BlockSink& sink) const override;

  absl::StatusOr<v1::Intent> Intent(IntentNumber number) const override;
  absl::StatusOr<v1::Actor> Actor(ActorNumber number) const override;
  absl::StatusOr<v1::Device> Device(DeviceNumber number) const override;
  absl::StatusOr<v1::File> File(FileNumber number) const override;
  absl::StatusOr<std::vector<IntentNumber>> FindIntents(std::string_view hex_prefix,
                                                        size_t limit) const override;
  absl::Status ForEachIntent(
      const std::function<bool(IntentNumber, const v1::Intent&)>& sink) const override;
  absl::StatusOr<SeenSpan> IntentSeen(IntentNumber number) const override;

  absl::StatusOr<std::vector<StoredGap>> Gaps(std::span<const HostNumber> hosts,
                                              const ScanRange& range) const override;
  absl::StatusOr<std::vector<StoredCoverage>> Coverage(std::span<const HostNumber> hosts,
                                                       const ScanRange& range) const override;
  absl::StatusOr<std::map<std::string, uint64_t>> Losses(std::span<const HostNumber> hosts,
                                                         const ScanRange& range) const override;
  absl::Status TagWaits(std::span<const HostNumber> hosts, const ScanRange& range,
                        const TagWaitsSink& sink) const override;

 private:
  // Which units are covered by which segment. Hosts mostly share theirs.
  using Segments = std::map<std::tuple<Level, uint64_t, uint64_t>, std::vector<HostNumber>>;
  Segments SharedSegments(std::span<const HostNumber> hosts, const ScanRange& clamped) const;

  class Scan;

  ScanRange Clamp(const ScanRange& range) const;

  const ReadSources sources_;
  const std::shared_ptr<const DirtyCopy> dirty_;
  const Horizons horizons_;
  const uint64_t first_unix_ns_;
  const uint64_t last_unix_ns_;
  const uint32_t host_count_;
  const rocksdb::Snapshot* const snapshot_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROCKS_READ_VIEW_H_
